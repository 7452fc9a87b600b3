//! The cluster's certificates and keys, made anew for each cluster and gone with its run folder.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::plan::{Node, Plan, SERVICE_API};

/// A certificate to be made: file name, subject, names it serves under.
struct Want {
    file: String,
    user: String,
    group: Option<&'static str>,
    names: Vec<String>,
}

/// Writes the authority, one certificate per user and server, and the key of service account tokens into `pki/`.
pub(crate) fn write(plan: &Plan) -> Result<()> {
    let folder = plan.file("pki");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let tokens = KeyPair::generate()?;
    secret(&folder.join("sa.key"), &tokens.serialize_pem())?;
    secret(&folder.join("sa.pub"), &tokens.public_key_pem())?;

    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name.push(DnType::CommonName, plan.name.group());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    secret(&folder.join("ca.crt"), &params.self_signed(&key)?.pem())?;
    let authority = Issuer::new(params, key);
    wants(plan).iter().try_for_each(|want| sign(&folder, &authority, want))
}

fn wants(plan: &Plan) -> Vec<Want> {
    let user = |file: &str, user: &str, group| Want {
        file: file.to_owned(),
        user: user.to_owned(),
        group,
        names: Vec::new(),
    };
    let masters = Some("system:masters");
    let mut all = vec![
        Want { names: api_names(), ..user("apiserver", "kube-apiserver", None) },
        user("kubelet-client", "kube-apiserver-kubelet-client", masters),
        user("admin", "admin", masters),
        user("kube-router", "kube-router", masters),
        user("controller-manager", "system:kube-controller-manager", None),
        user("scheduler", "system:kube-scheduler", None),
        user("proxy", "system:kube-proxy", None),
    ];
    for node in plan.nodes() {
        let (name, subject) = (node.to_string(), format!("system:node:{node}"));
        let names = vec![name.clone(), node.address().to_string()];
        all.push(user(&name, &subject, Some("system:nodes")));
        all.push(Want { names, ..user(&format!("{name}-serving"), &subject, Some("system:nodes")) });
    }
    all
}

fn api_names() -> Vec<String> {
    let names = ["localhost", "127.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let addresses = [Node(0).address(), SERVICE_API];
    names.iter().map(ToString::to_string).chain(addresses.iter().map(ToString::to_string)).collect()
}

fn sign(folder: &Path, authority: &Issuer<'_, KeyPair>, want: &Want) -> Result<()> {
    let mut params = CertificateParams::new(want.names.clone())?;
    params.distinguished_name.push(DnType::CommonName, want.user.as_str());
    if let Some(group) = want.group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    secret(&folder.join(format!("{}.crt", want.file)), &certificate.pem())?;
    secret(&folder.join(format!("{}.key", want.file)), &key.serialize_pem())
}

/// Writes a file that only its owner reads, and that did not exist.
fn secret(path: &Path, text: &str) -> Result<()> {
    let open = || fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = open().with_context(|| path.display().to_string())?;
    file.write_all(text.as_bytes()).with_context(|| path.display().to_string())
}
