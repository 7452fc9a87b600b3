//! HTTP: transparent, with a whole URI, and in a tunnel.

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::world::{SANDBOX, World, ask, from, head, rest};

async fn plain(world: &World, text: &str) -> String {
    ask(SANDBOX, world.at.http, text).await
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap_or("0").parse().unwrap()
}

/// The JSON of a refusal.
pub(crate) fn refusal(answer: &str) -> Value {
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_else(|| panic!("no body: {answer:?}"));
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_allowed_request_is_written_anew_and_its_answer_too() {
    let world = World::new().await;
    let port = world.http.0.port();
    let text = format!(
        "GET /ok/a?b=c HTTP/1.1\r\nHost: WEB.example:{port}\r\nProxy-Authorization: x\r\nX-Forwarded-For: 1.2.3.4\r\n\
        Connection: keep-alive\r\nAccept: */*\r\n\r\n"
    );
    let answer = plain(&world, &text).await;
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
    let expected = format!(
        "GET /ok/a?b=c HTTP/1.1\r\nHost: web.example:{port}\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(world.requests(), [expected]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_without_port_is_the_port_of_the_listener() {
    let world = World::new().await;
    let answer = plain(&world, "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n").await;
    assert_eq!(status(&answer), 200, "{answer}");
    let answer = plain(&world, "GET /ok HTTP/1.1\r\nHost: web.example:81\r\n\r\n").await;
    assert_eq!(refusal(&answer)["reason"], "AuthorityMismatch");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_what_to_do() {
    let world = World::new().await;
    let answer = plain(&world, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
    assert_eq!(status(&answer), 403);
    let refusal = refusal(&answer);
    for (field, value) in [("layer", "http"), ("host", "evil.example"), ("reason", "NoRule")] {
        assert_eq!(refusal[field], value, "{field}");
    }
    assert_eq!(
        (refusal["ruleMissing"].as_bool(), refusal["port"].as_u64()),
        (Some(true), Some(world.http.0.port().into()))
    );
    assert!(refusal["howToAsk"].as_str().unwrap().contains("spec.egress.allow"));
    assert!(refusal["requestId"].as_str().unwrap().len() > 16);
    assert!(world.requests().is_empty() && world.authority.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_and_paths_are_judged() {
    let world = World::new().await;
    for (line, reason) in [
        ("DELETE /ok/a", "RequestNotAllowed"),
        ("get /ok/a", "RequestNotAllowed"),
        ("GET /other", "RequestNotAllowed"),
        ("GET /okay", "RequestNotAllowed"),
        ("GET /ok/../other", "AmbiguousPath"),
        ("GET /ok/%2e%2e/other", "AmbiguousPath"),
        ("GET //ok/a", "AmbiguousPath"),
    ] {
        let answer = plain(&world, &format!("{line} HTTP/1.1\r\nHost: web.example\r\n\r\n")).await;
        assert_eq!((status(&answer), &refusal(&answer)["reason"]), (403, &reason.into()), "{line}");
    }
    assert!(world.requests().is_empty());
    let answer = plain(&world, "HEAD /ok/a HTTP/1.1\r\nHost: web.example\r\n\r\n").await;
    assert!(answer.ends_with("Connection: close\r\n\r\n"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_request_on_the_connection_goes_nowhere() {
    let world = World::new().await;
    for second in ["evil.example", "web.example"] {
        let text = format!(
            "GET /ok/a HTTP/1.1\r\nHost: web.example\r\n\r\nGET /ok/secret HTTP/1.1\r\nHost: {second}\r\n\r\n"
        );
        let answer = plain(&world, &text).await;
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    }
    // Nor when it comes behind a body, or later.
    let text = "POST /ok/a HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\n\r\nabcDELETE / HTTP/1.1\r\nHost: web.example\r\n\r\n";
    assert_eq!(plain(&world, text).await.matches("HTTP/1.1").count(), 1);
    let text = "POST /ok/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n\
        3;x=y\r\nabc\r\n0\r\nT: x\r\n\r\nDELETE / HTTP/1.1\r\nHost: web.example\r\n\r\n";
    assert_eq!(plain(&world, text).await.matches("HTTP/1.1").count(), 1);
    let requests = world.requests();
    assert_eq!(requests.len(), 4);
    assert!(requests.iter().all(|request| !request.contains("secret") && !request.contains("DELETE")));
    assert!(requests[2].ends_with("Content-Length: 3\r\nConnection: close\r\n\r\nabc"), "{}", requests[2]);
    assert!(requests[3].ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{}", requests[3]);
}

/// Each could be one request to us and another to the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn smuggling_is_refused_before_anything_leaves() {
    let world = World::new().await;
    let fields = [
        "Content-Length: 3\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 3",
        "Content-Length: 3\r\nContent-Length: 30",
        "Content-Length: 3, 30",
        "Content-Length: +3",
        "Content-Length : 3",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        "Transfer-Encoding: \tchunked, chunked",
        "X: y\r\n Transfer-Encoding: chunked",
        "X: y\nTransfer-Encoding: chunked",
        "X: y\rTransfer-Encoding: chunked",
        "X: y\0\r\nContent-Length: 3",
        "Transfer_Encoding: chunked",
        "Host: evil.example",
    ];
    for field in fields {
        let text = format!(
            "POST /ok/a HTTP/1.1\r\nHost: web.example\r\n{field}\r\n\r\n0\r\n\r\nGET /x HTTP/1.1\r\n\r\n"
        );
        let answer = plain(&world, &text).await;
        assert_eq!(status(&answer), 400, "{field:?}: {answer}");
        assert!(!answer.contains("HTTP/1.1 200"), "{field:?}");
    }
    let text = "POST /ok/a HTTP/1.0\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(status(&plain(&world, text).await), 400);
    assert!(world.requests().is_empty());
    assert!(world.alarms.all().iter().any(|(reason, _)| reason == "HeadAmbiguous"));
    // Malformed chunks end it, and what was good before them is all that left.
    let text = "POST /ok/a HTTP/1.1\r\nHost: web.example\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcX\r\n0\r\n\r\n";
    plain(&world, text).await;
    assert!(world.requests().is_empty(), "no whole request arrived");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_uri_is_served_at_the_proxy_and_must_agree_with_host() {
    let world = World::new().await;
    let port = world.http.0.port();
    let proxied = async |uri: &str, host: &str| {
        ask(SANDBOX, world.at.proxy, format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\n\r\n")).await
    };
    let answer = proxied(&format!("http://web.example:{port}/ok/a"), &format!("web.example:{port}")).await;
    assert_eq!(status(&answer), 200, "{answer}");
    for (uri, host, code, reason) in [
        (format!("http://web.example:{port}/ok"), "evil.example".to_owned(), 400, "AuthorityMismatch"),
        (format!("http://evil.example:{port}/ok"), format!("web.example:{port}"), 400, "AuthorityMismatch"),
        (format!("http://web.example:{port}/ok"), "web.example".into(), 400, "AuthorityMismatch"),
        ("http://evil.example/".into(), "evil.example".into(), 403, "NoRule"),
        (format!("https://web.example:{port}/ok"), format!("web.example:{port}"), 400, "HeadMalformed"),
        ("ftp://web.example/ok".into(), "web.example".into(), 400, "HeadMalformed"),
        ("/ok".into(), format!("web.example:{port}"), 400, "NotAProxyRequest"),
        (format!("http://a@web.example:{port}/ok"), format!("web.example:{port}"), 400, "InvalidHost"),
    ] {
        let answer = proxied(&uri, &host).await;
        assert_eq!((status(&answer), &refusal(&answer)["reason"]), (code, &reason.into()), "{uri} {host}");
    }
    assert_eq!(world.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_in_a_tunnel_is_judged_as_http() {
    let world = World::new().await;
    let port = world.http.0.port();
    let through = async |text: String| {
        let (answer, mut stream) = world.connect(&format!("web.example:{port}")).await;
        assert_eq!(status(&answer), 200, "{answer}");
        stream.write_all(text.as_bytes()).await.unwrap();
        rest(&mut stream).await
    };
    let good = through(format!("GET /ok/a HTTP/1.1\r\nHost: web.example:{port}\r\n\r\n")).await;
    assert_eq!(status(&good), 200);
    let path = through(format!("GET /no HTTP/1.1\r\nHost: web.example:{port}\r\n\r\n")).await;
    assert_eq!(refusal(&path)["reason"], "RequestNotAllowed");
    let other = through(format!("GET /ok/a HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n")).await;
    assert_eq!(refusal(&other)["reason"], "TunnelMismatch");
    assert_eq!(world.requests().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_refuses_in_words() {
    let world = World::new().await;
    let (tls, web) = (world.tls.0.port(), world.http.0.port());
    for (target, code, reason) in [
        ("evil.example:443".to_owned(), 403, "NoRule"),
        ("tls.example:22".into(), 403, "PortNotAllowed"),
        ("tls.example:25".into(), 403, "DeniedPort"),
        (format!("web.example:{tls}"), 403, "PortNotAllowed"),
        (format!("tls.example:{web}"), 403, "PortNotAllowed"),
        ("tls.example".into(), 400, "PortUnclear"),
        ("tls.example:0".into(), 400, "PortUnclear"),
        ("tls.example:99999".into(), 400, "PortUnclear"),
        ("http://tls.example:443".into(), 400, "PortUnclear"),
    ] {
        let (answer, mut stream) = world.connect(&target).await;
        assert_eq!(status(&answer), code, "{target}: {answer}");
        let refusal = refusal(&format!("{answer}{}", rest(&mut stream).await));
        assert_eq!(refusal["reason"], reason, "{target}");
    }
    let text = format!("CONNECT tls.example:{tls} HTTP/1.1\r\nHost: evil.example:{tls}\r\n\r\n");
    assert_eq!(status(&ask(SANDBOX, world.at.proxy, text).await), 400);
    assert!(world.authority.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_has_a_deadline_and_a_size() {
    let world = World::new().await;
    let mut stream = from(SANDBOX, world.at.http).await;
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: web").await.unwrap();
    assert_eq!(status(&head(&mut stream).await), 408);
    let long = format!("GET /ok HTTP/1.1\r\nHost: web.example\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    assert_eq!(status(&plain(&world, &long).await), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trouble_outside_is_told_apart_from_a_refusal() {
    let world = World::new().await;
    world.authority.set("web.example", crate::fakes::Zone::To(vec!["127.1.9.9".parse().unwrap()]));
    let answer = plain(&world, "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n").await;
    assert_eq!((status(&answer), &refusal(&answer)["reason"]), (502, &"Unreachable".into()));
}
