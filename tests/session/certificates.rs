//! Who is known by a client certificate, who is not, and what no certificate makes good.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, date_time_ymd,
};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore, crypto,
        pki_types::{CertificateDer, PrivateKeyDer},
    },
};

use crate::{
    client::{Reply, exchange, request},
    life::certificate,
    world::{EXEC, Files, TOKEN, World, command, exec, timing},
};

/// An authority of users.
struct Users(Issuer<'static, KeyPair>, String);

/// Somebody's certificate and key.
struct Shown(CertificateDer<'static>, PrivateKeyDer<'static>);

impl Users {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self(Issuer::new(params, key), pem)
    }

    fn sign(&self, params: &CertificateParams) -> Shown {
        let key = KeyPair::generate().unwrap();
        let made = params.signed_by(&key, &self.0).unwrap();
        Shown(made.der().clone(), key.serialize_der().try_into().unwrap())
    }
}

fn user(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// A session that takes certificates, and who trusts it.
struct Secured(World, RootCertStore);

impl Secured {
    async fn new(flags: &[&str]) -> Self {
        let files = Files::new();
        let (cert, key, roots) = certificate();
        let (cert, key) = (files.write("tls.crt", &cert), files.write("tls.key", &key));
        let tls: Vec<&str> =
            ["--tls-cert", &cert, "--tls-key", &key].into_iter().chain(flags.iter().copied()).collect();
        let world = World::over(&[], timing(), files, &tls).await;
        world.cluster.has_certified("ada", &["devs", "system:authenticated"]);
        world.cluster.lets("ada", "create", "agentsandboxes/exec", "a");
        Self(world, roots)
    }

    /// The usual one, which trusts these users.
    async fn with(users: &Users) -> Self {
        let secured = Self::new(&["--client-certificates"]).await;
        secured.0.authority.trust(&users.1).unwrap();
        secured
    }

    async fn connect(&self, shown: Option<Shown>) -> std::io::Result<TlsStream<tokio::net::TcpStream>> {
        let provider = Arc::new(crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(self.1.clone());
        let config = match shown {
            Some(Shown(certificate, key)) => builder.with_client_auth_cert(vec![certificate], key).unwrap(),
            None => builder.with_no_client_auth(),
        };
        TlsConnector::from(Arc::new(config))
            .connect("session".try_into().unwrap(), self.0.connect().await)
            .await
    }

    async fn send(&self, shown: Option<Shown>, bytes: &[u8]) -> Reply {
        exchange(self.connect(shown).await.unwrap(), bytes).await
    }

    /// Whether nothing at all is answered: the handshake ends badly, which a client of TLS 1.3 learns when it reads.
    async fn is_turned_away(&self, shown: Shown) -> bool {
        let Ok(mut stream) = self.connect(Some(shown)).await else { return true };
        let _ = stream.write_all(&call(&[])).await;
        let mut all = Vec::new();
        let _ = stream.read_to_end(&mut all).await;
        all.is_empty()
    }
}

/// A call without a token.
fn call(fields: &[(&str, &str)]) -> Vec<u8> {
    let all = [fields, &[("content-type", "application/json")]].concat();
    request("POST", EXEC, &all, &command(&["echo", "hi"]).to_string())
}

#[tokio::test]
async fn a_certificate_of_the_cluster_is_enough() {
    let users = Users::new();
    let secured = Secured::with(&users).await;
    let reply = secured.send(Some(users.sign(&user("ada", &["devs"]))), &call(&[])).await;
    assert_eq!((reply.status, &reply.json()["stdout"]), (200, &json!("hi")));
    let world = &secured.0;
    assert_eq!((world.cluster.asked("TokenReview"), world.cluster.asked("SubjectAccessReview")), (0, 1));
    assert!(world.metrics().await.contains("reviews_total{review=\"certificate\",cached=\"no\"} 1"));
    // Rights are asked as for anybody else, by the names in it alone.
    world.cluster.has_certified("bob", &["system:authenticated"]);
    let reply = secured.send(Some(users.sign(&user("bob", &[]))), &call(&[])).await;
    assert_eq!(reply.problem(), (403, "Forbidden".into()));
    assert!(reply.message().starts_with("bob may not"), "{}", reply.message());
}

#[tokio::test]
async fn whoever_shows_none_needs_a_token() {
    let users = Users::new();
    let secured = Secured::with(&users).await;
    assert_eq!(secured.send(None, &call(&[])).await.problem(), (401, "Unauthenticated".into()));
    assert_eq!(secured.send(None, &exec(TOKEN, &[], &command(&["echo"]))).await.status, 200);
    // Who sends a token is who it says, or nobody.
    let ada = || Some(users.sign(&user("ada", &["devs"])));
    let reply = secured.send(ada(), &call(&[("authorization", "Bearer stolen")])).await;
    assert_eq!(reply.problem(), (401, "Unauthenticated".into()));
    let reply = secured.send(ada(), &call(&[("authorization", "Basic YTpi")])).await;
    assert_eq!(reply.problem(), (401, "Unauthenticated".into()));
}

#[tokio::test]
async fn a_header_is_no_certificate() {
    let users = Users::new();
    let secured = Secured::with(&users).await;
    let Shown(certificate, _) = users.sign(&user("ada", &["devs"]));
    let pem = format!("Cert=\"{}\";Subject=\"CN=ada,O=devs\"", encoded(&certificate));
    let pem = pem.as_str();
    for fields in [
        &[("x-remote-user", "ada"), ("x-remote-group", "devs")][..],
        &[("x-forwarded-client-cert", pem)],
        &[("ssl-client-cert", pem), ("ssl-client-verify", "SUCCESS")],
        &[("client-cert", pem)],
        &[("impersonate-user", "ada"), ("impersonate-group", "devs")],
    ] {
        assert_eq!(
            secured.send(None, &call(fields)).await.problem(),
            (401, "Unauthenticated".into()),
            "{fields:?}"
        );
    }
    // Nor do they make somebody else of who has shown one.
    secured.0.cluster.has_certified("bob", &["system:authenticated"]);
    let fields = [("x-remote-user", "ada"), ("impersonate-user", "ada"), ("x-forwarded-client-cert", pem)];
    let reply = secured.send(Some(users.sign(&user("bob", &[]))), &call(&fields)).await;
    assert_eq!(reply.problem(), (403, "Forbidden".into()));
    assert_eq!(secured.0.agent.calls(), 0);
}

fn encoded(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test]
async fn one_that_is_not_good_opens_nothing() {
    let (users, others) = (Users::new(), Users::new());
    let secured = Secured::with(&users).await;
    let with = |change: fn(&mut CertificateParams)| {
        let mut params = user("ada", &["devs"]);
        change(&mut params);
        params
    };
    let expired = with(|params| params.not_after = date_time_ymd(2020, 1, 1));
    let coming = with(|params| params.not_before = date_time_ymd(4000, 1, 1));
    let server = with(|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    for (what, shown) in [
        ("of another authority", others.sign(&user("ada", &["devs"]))),
        ("expired", users.sign(&expired)),
        ("not valid yet", users.sign(&coming)),
        ("for servers", users.sign(&server)),
    ] {
        assert!(secured.is_turned_away(shown).await, "{what}");
    }
    // Made by oneself, with the authority's own name.
    let key = KeyPair::generate().unwrap();
    let own = user("ada", &["system:masters"]).self_signed(&key).unwrap();
    assert!(secured.is_turned_away(Shown(own.der().clone(), key.serialize_der().try_into().unwrap())).await);
    // One that names nobody is good, and nobody's.
    for nobody in [user("", &["system:masters"]), {
        let mut params = user("ada", &["system:masters"]);
        params.distinguished_name.remove(DnType::CommonName);
        params
    }] {
        let reply = secured.send(Some(users.sign(&nobody)), &call(&[])).await;
        assert_eq!(reply.problem(), (401, "Unauthenticated".into()));
    }
    assert_eq!((secured.0.agent.calls(), secured.0.cluster.asked("SubjectAccessReview")), (0, 0));
}

#[tokio::test]
async fn without_the_flag_none_is_asked_for() {
    let users = Users::new();
    let secured = Secured::new(&[]).await;
    secured.0.authority.trust(&users.1).unwrap();
    let ada = || Some(users.sign(&user("ada", &["devs"])));
    assert_eq!(secured.send(ada(), &call(&[])).await.problem(), (401, "Unauthenticated".into()));
    // The same while the cluster has not said who vouches.
    let secured = Secured::new(&["--client-certificates"]).await;
    assert_eq!(secured.send(ada(), &call(&[])).await.problem(), (401, "Unauthenticated".into()));
}

#[tokio::test]
async fn trust_that_is_taken_away_is_gone_on_open_connections_too() {
    let (users, others) = (Users::new(), Users::new());
    let secured = Secured::with(&users).await;
    let ada = || users.sign(&user("ada", &["devs"]));
    let mut open = secured.connect(Some(ada())).await.unwrap();
    // The first request of a connection that stays.
    let first = String::from_utf8(call(&[])).unwrap().replace("connection: close\r\n", "");
    open.write_all(first.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !String::from_utf8_lossy(&answer).contains("durationMs") {
        assert!(open.read_buf(&mut answer).await.unwrap() > 0);
    }
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    secured.0.authority.trust(&others.1).unwrap();
    assert_eq!(exchange(open, &call(&[])).await.problem(), (401, "Unauthenticated".into()));
    assert!(secured.is_turned_away(ada()).await);
    let reply = secured.send(Some(others.sign(&user("ada", &["devs"]))), &call(&[])).await;
    assert_eq!(reply.status, 200);
    secured.0.authority.distrust();
    assert_eq!(secured.send(Some(ada()), &call(&[])).await.status, 401);
}
