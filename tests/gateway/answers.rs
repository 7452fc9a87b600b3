//! What the world's DNS says of allowed names, and what is made of it.

use std::{net::IpAddr, time::Duration};

use crate::{
    fakes::Zone,
    world::{OUTSIDE, SANDBOX, Setup, World, ask, echoes, soon},
};

async fn get(world: &World) -> String {
    ask(SANDBOX, world.at.http, "GET /ok HTTP/1.1\r\nHost: web.example\r\n\r\n").await
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_that_are_always_denied_are_never_dialled() {
    // Somebody does listen there, at the very port.
    let (world, listener) = loop {
        let world = World::new().await;
        let address = std::net::SocketAddr::new(ip("127.0.0.1"), world.http.0.port());
        if let Ok(listener) = tokio::net::TcpListener::bind(address).await {
            break (world, listener);
        }
    };
    world.authority.set("web.example", Zone::To(vec![ip("127.0.0.1")]));
    assert!(get(&world).await.contains("NoUsableAddress"));
    let accepted = tokio::time::timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(accepted.is_err(), "it was dialled");
    for address in [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "10.0.0.1",
        "192.168.1.1",
        "172.16.0.1",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "::1",
        "::",
        "::ffff:127.1.0.1",
        "::ffff:169.254.169.254",
        "::127.1.0.1",
        "64:ff9b::7f01:1",
        "64:ff9b:1::a00:1",
        "2002:a9fe:a9fe::",
        "2001::1",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fc00::1",
    ] {
        let world = World::new().await;
        world.authority.set("web.example", Zone::To(vec![ip(address)]));
        let answer = get(&world).await;
        assert!(
            answer.starts_with("HTTP/1.1 502 ") && answer.contains("NoUsableAddress"),
            "{address}: {answer}"
        );
        assert!(world.metrics().await.contains("bad_answers_total{reason="), "{address} is counted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_mixed_answer_the_good_address_is_dialled() {
    let world = World::new().await;
    let mixed = ["169.254.169.254", "127.0.0.1", "10.1.2.3"].map(ip).into_iter().chain([OUTSIDE]).collect();
    world.authority.set("web.example", Zone::To(mixed));
    assert!(get(&world).await.starts_with("HTTP/1.1 200 "));
    let metrics = world.metrics().await;
    assert!(metrics.contains("MetadataAddress") && metrics.contains("LocalAddress"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_turns_is_checked_each_time() {
    let world = World::new().await;
    let turns = vec![vec![OUTSIDE], vec![ip("127.0.0.1")], vec![ip("169.254.169.254")]];
    world.authority.set("web.example", Zone::Turns(turns));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(get(&world).await[9..12].to_owned());
        // Longer than an answer of TTL 0 is kept.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    assert_eq!(codes, ["200", "502", "502", "200"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn aliases_are_followed_so_far_and_the_end_is_checked() {
    let world = World::new().await;
    for (zone, code) in [
        (Zone::Chain(1, OUTSIDE), "200"),
        (Zone::Chain(8, OUTSIDE), "200"),
        (Zone::Chain(9, OUTSIDE), "502"),
        (Zone::Chain(2, ip("127.0.0.1")), "502"),
        (Zone::Chain(1, ip("169.254.169.254")), "502"),
    ] {
        let world = World::new().await;
        world.authority.set("web.example", zone);
        assert_eq!(&get(&world).await[9..12], code);
    }
    // In answers of their own: a chain that ends, one into what is private, and one without an end.
    world.authority.set("web.example", Zone::Alias("a.alias.example".into()));
    world.authority.set("a.alias.example", Zone::Alias("b.alias.example".into()));
    world.authority.set("b.alias.example", Zone::To(vec![OUTSIDE]));
    assert_eq!(&get(&world).await[9..12], "200", "an allowed name may be an alias of what is not listed");
    for loops in [true, false] {
        let world = World::new().await;
        world.authority.set("web.example", Zone::Alias("a.alias.example".into()));
        let end = if loops { Zone::Alias("web.example".into()) } else { Zone::To(vec![ip("10.0.0.1")]) };
        world.authority.set("a.alias.example", end);
        assert_eq!(&get(&world).await[9..12], "502");
        assert!(world.authority.asked().len() < 40, "a loop ends");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_and_absence_are_told_apart() {
    let world = World::new().await;
    world.authority.set("web.example", Zone::Silence);
    let answer = get(&world).await;
    assert!(answer.starts_with("HTTP/1.1 504 ") && answer.contains("TimedOut"), "{answer}");
    let world = World::new().await;
    world.authority.set("web.example", Zone::To(vec![]));
    let answer = get(&world).await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("NameNotFound"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_address_that_answers_is_taken() {
    let world = World::new().await;
    world.authority.set("tls.example", Zone::To(vec![ip("127.1.9.9"), OUTSIDE]));
    let mut stream = soon(world.tls_to("tls.example")).await.unwrap();
    echoes(&mut stream, b"second").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_over_tls_is_spoken_with_whom_it_should_be_and_with_nobody_else() {
    let world = World::made(Setup { dns_by_tls: true, ..Setup::default() }).await;
    assert!(get(&world).await.starts_with("HTTP/1.1 200 "));
    let world = World::made(Setup { dns_by_tls: true, dns_untrusted: true, ..Setup::default() }).await;
    let answer = get(&world).await;
    assert!(answer.starts_with("HTTP/1.1 50"), "{answer}");
    assert!(world.authority.asked().is_empty(), "it is not asked another way");
}
