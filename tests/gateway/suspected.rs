//! A sandbox whose class says that what it did is enough: all of its egress ends here, at once, and nobody else's.

use std::net::IpAddr;

use glovebox::api::SandboxClass;
use serde_json::{Value, json};

use crate::{
    dns::addresses,
    world::{SANDBOX, World, ask, echoes, from, head, rest, soon},
};
use tokio::io::AsyncWriteExt as _;

const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 7, 9));

fn class(action: &str) -> SandboxClass {
    serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "spec": {"trust": "Trusted", "runtime": {"isolation": "SharedKernel"}, "detection": {"action": action}},
    }))
    .unwrap()
}

/// Three acts that no honest client does.
async fn attack(world: &World) {
    for target in ["169.254.169.254:80", "169.254.170.2:80", "127.0.0.1:80"] {
        assert!(world.connect(target).await.0.starts_with("HTTP/1.1 403"), "{target}");
    }
}

async fn signs(world: &World) -> Value {
    let request = "GET /signs/none/0 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let said = ask(SANDBOX, world.at.admin, request).await;
    serde_json::from_str(said.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_three_severe_acts_all_of_its_egress_ends_and_nobody_elses() {
    let world = World::new().await;
    let other = world.sandbox("other", OTHER);
    world.tenant.watch.judge_by(Some(&class("DenyAll")));
    let echo = format!("echo.example:{}", world.echo.0.port());
    let (said, mut open) = world.connect(&echo).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    echoes(&mut open, b"before").await;
    attack(&world).await;
    assert_eq!(soon(rest(&mut open)).await, "", "what was open has ended");
    let (said, mut refused) = world.connect(&echo).await;
    assert!(said.starts_with("HTTP/1.1 403"), "{said}");
    let body: Value = serde_json::from_str(&rest(&mut refused).await).unwrap();
    assert_eq!(body["reason"], "Suspected");
    assert!(addresses(&world, SANDBOX, "tls.example").await.is_empty(), "no name is resolved");
    assert!(world.tls_to("tls.example").await.is_err());
    // The same sandbox under another address, as after a moment without its own.
    assert!(world.tenant.successor(jiff::Timestamp::now()).open_flows() == 0 && world.tenant.watch.is_shut());
    assert!(!other.watch.is_shut() && !addresses(&world, OTHER, "tls.example").await.is_empty());
    let mut stream = from(OTHER, world.at.proxy).await;
    stream.write_all(format!("CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n\r\n").as_bytes()).await.unwrap();
    assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"));
    let said = signs(&world).await;
    let told = said["sandboxes"].as_array().unwrap();
    assert_eq!((told.len(), &told[0]["uid"]), (1, &json!("uid-one")));
    let severe =
        told[0]["signs"].as_array().unwrap().iter().filter(|sign| sign["weight"] == "Severe").count();
    assert_eq!(severe, 3, "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_class_wants_it_told_alone_it_goes_on() {
    let world = World::new().await;
    world.tenant.watch.judge_by(Some(&class("Report")));
    attack(&world).await;
    assert!(!world.tenant.watch.is_shut() && world.tls_to("tls.example").await.is_ok());
    assert_eq!(world.tenant.watch.seen().unwrap().severe, 3);
}
