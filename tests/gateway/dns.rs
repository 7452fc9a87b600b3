//! DNS as a sandbox meets it, by UDP and TCP.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use hickory_proto::{
    op::{Edns, Message, Query, ResponseCode},
    rr::{Name, RData, RecordType, rdata::opt::EdnsCode},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UdpSocket,
};

use crate::world::{HERE, SANDBOX, World, from, soon};

fn query(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    message.set_edns(Edns::new());
    message
}

/// Asks by UDP from a source; none if there is no answer within three seconds.
async fn udp(world: &World, source: IpAddr, packet: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((source, 0)).await.unwrap();
    socket.send_to(packet, world.at.dns_udp).await.unwrap();
    let mut buffer = [0; 4096];
    let received = tokio::time::timeout(Duration::from_secs(3), socket.recv(&mut buffer)).await;
    received.ok().map(|length| buffer[..length.unwrap()].to_vec())
}

pub(crate) async fn asked(world: &World, source: IpAddr, name: &str, kind: RecordType) -> Message {
    let bytes = query(name, kind).to_vec().unwrap();
    Message::from_vec(&udp(world, source, &bytes).await.unwrap()).unwrap()
}

/// The addresses that a sandbox is told.
pub(crate) async fn addresses(world: &World, source: IpAddr, name: &str) -> Vec<Ipv4Addr> {
    let reply = asked(world, source, &format!("{name}."), RecordType::A).await;
    let address = |data: &RData| if let RData::A(address) = data { Some(address.0) } else { None };
    reply.answers.iter().filter_map(|record| address(&record.data)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steers_to_the_gateway_and_asks_nobody() {
    let world = World::new().await;
    for name in ["tls.example.", "TLS.eXample.", "any.wild.example.", "web.example.", "echo.example."] {
        let reply = asked(&world, SANDBOX, name, RecordType::A).await;
        assert_eq!(reply.answers[0].data, RData::A(HERE.into()), "{name}");
    }
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let reply = asked(&world, SANDBOX, "tls.example.", kind).await;
        assert!(reply.answers.is_empty() && reply.metadata.response_code == ResponseCode::NoError);
    }
    for name in ["evil.example.", "wild.example.", "a.b.wild.example.", "example.", ".", "nottls.example."] {
        let reply = asked(&world, SANDBOX, name, RecordType::A).await;
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain, "{name}");
        let options = reply.edns.unwrap();
        assert!(options.option(EdnsCode::from(15)).is_some(), "{name} is denied without words");
    }
    assert!(world.authority.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_denied_names_cause_no_packet_outside() {
    let world = World::new().await;
    // The honest twin: an allowed name is asked for outside when it is dialled, so the authority does see queries.
    drop(world.tls_to("tls.example").await.unwrap());
    let before = world.authority.asked().len();
    assert!(before > 0);
    let limits = glovebox::gateway::tenant::Limits {
        queries: glovebox::gateway::limit::Rate::new(1_000_000, 1_000_000),
        ..Default::default()
    };
    let _ = world.tenant.swap(&world.rules(), limits, jiff::Timestamp::now());
    let socket = UdpSocket::bind((SANDBOX, 0)).await.unwrap();
    socket.connect(world.at.dns_udp).await.unwrap();
    let mut buffer = [0; 4096];
    let mut seed = 1_u64;
    for i in 0..10_000 {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let name = format!("{seed:x}.{:x}.tunnel.example.", seed >> 7);
        let kind = if i % 2 == 0 { RecordType::A } else { RecordType::AAAA };
        let mut message = query(&name, kind);
        message.metadata.id = u16::try_from(i).unwrap();
        socket.send(&message.to_vec().unwrap()).await.unwrap();
        let length = soon(socket.recv(&mut buffer)).await.unwrap();
        let reply = Message::from_vec(&buffer[..length]).unwrap();
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
        assert_eq!(reply.metadata.id, message.metadata.id);
    }
    assert_eq!(world.authority.asked().len(), before);
    let kept = world.tenant.refusals.take();
    assert!(kept.len() <= 66, "the record of it stays small");
    assert_eq!(kept.iter().map(|(_, folded)| folded.count).sum::<u64>(), 10_000, "and misses none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wildcard_is_for_so_many_names_an_hour() {
    let world = World::new().await;
    let limits = glovebox::gateway::tenant::Limits { names: 5, ..Default::default() };
    let _ = world.tenant.swap(&world.rules(), limits, jiff::Timestamp::now());
    let code = async |name: &str| asked(&world, SANDBOX, name, RecordType::A).await.metadata.response_code;
    for i in 0..8 {
        let want = if i < 5 { ResponseCode::NoError } else { ResponseCode::NXDomain };
        assert_eq!(code(&format!("data{i}.wild.example.")).await, want, "{i}");
    }
    assert_eq!(code("data0.wild.example.").await, ResponseCode::NoError, "an old name goes on");
    assert_eq!(code("tls.example.").await, ResponseCode::NoError, "a name of its own is none of them");
    // Nor can it be dialled, DNS or not.
    let (answer, _) = world.connect(&format!("data9.wild.example:{}", world.tls.0.port())).await;
    assert!(answer.starts_with("HTTP/1.1 429 "), "{answer}");
    assert!(world.authority.asked().is_empty());
    assert!(world.alarms.all().iter().any(|(reason, _)| reason == "TooManyNames"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_types_are_refused() {
    let world = World::new().await;
    for number in [0_u16, 2, 5, 6, 10, 12, 15, 16, 33, 35, 43, 46, 48, 99, 251, 252, 255, 256, 32768, 65535] {
        let mut bytes = query("tls.example.", RecordType::A).to_vec().unwrap();
        let at = 12 + "tls.example.".len() + 1;
        bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
        let reply = udp(&world, SANDBOX, &bytes).await.unwrap();
        assert_eq!(reply[3] & 15, 5, "{number}");
        assert_eq!(&reply[6..8], [0, 0], "{number} has no answers");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_sources_are_refused_and_broken_packets_too() {
    let world = World::new().await;
    let reply = asked(&world, "127.0.7.99".parse().unwrap(), "tls.example.", RecordType::A).await;
    assert_eq!(reply.metadata.response_code, ResponseCode::Refused);
    assert!(reply.answers.is_empty());
    let good = query("tls.example.", RecordType::A).to_vec().unwrap();
    let mut answer = good.clone();
    answer[2] |= 0x80;
    assert_eq!(udp(&world, SANDBOX, &answer).await, None, "an answer is never answered");
    let mut update = good.clone();
    update[2] |= 5 << 3;
    assert_eq!(udp(&world, SANDBOX, &update).await.unwrap()[3] & 15, 4);
    let mut two = good.clone();
    two[5] = 2;
    assert_eq!(udp(&world, SANDBOX, &two).await.unwrap()[3] & 15, 1);
    // After all that it serves.
    let reply = asked(&world, SANDBOX, "tls.example.", RecordType::A).await;
    assert_eq!(reply.answers.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_tcp_it_is_the_same() {
    let world = World::new().await;
    let mut stream = from(SANDBOX, world.at.dns_tcp).await;
    for (name, code) in [("tls.example.", ResponseCode::NoError), ("evil.example.", ResponseCode::NXDomain)] {
        let bytes = query(name, RecordType::A).to_vec().unwrap();
        // The length in two pieces, and the packet in two more.
        let length = u16::try_from(bytes.len()).unwrap().to_be_bytes();
        for part in [&length[..1], &length[1..], &bytes[..7], &bytes[7..]] {
            stream.write_all(part).await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut reply = vec![0; soon(stream.read_u16()).await.unwrap().into()];
        soon(stream.read_exact(&mut reply)).await.unwrap();
        assert_eq!(Message::from_vec(&reply).unwrap().metadata.response_code, code);
    }
    // Two at once are answered one after the other.
    let bytes = query("tls.example.", RecordType::A).to_vec().unwrap();
    let mut both = Vec::new();
    for _ in 0..2 {
        both.extend(u16::try_from(bytes.len()).unwrap().to_be_bytes());
        both.extend(&bytes);
    }
    stream.write_all(&both).await.unwrap();
    for _ in 0..2 {
        let mut reply = vec![0; soon(stream.read_u16()).await.unwrap().into()];
        soon(stream.read_exact(&mut reply)).await.unwrap();
    }
    // Idle ends it; so does a length that no query has.
    assert!(soon(stream.read_u8()).await.is_err());
    let mut stream = from(SANDBOX, world.at.dns_tcp).await;
    stream.write_all(&[0xff, 0xff, 1, 2, 3]).await.unwrap();
    assert!(soon(stream.read_u8()).await.is_err());
    assert!(world.authority.asked().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_tcp_strangers_are_refused_and_sent_away() {
    let world = World::new().await;
    let mut stream = from("127.0.7.99".parse().unwrap(), world.at.dns_tcp).await;
    let bytes = query("tls.example.", RecordType::A).to_vec().unwrap();
    for _ in 0..2 {
        stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
    }
    let mut reply = vec![0; soon(stream.read_u16()).await.unwrap().into()];
    soon(stream.read_exact(&mut reply)).await.unwrap();
    assert_eq!((reply[3] & 15, &reply[6..8]), (5, &[0, 0][..]));
    assert!(soon(stream.read_u16()).await.is_err(), "one answer, and no more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_of_one_are_limited_and_another_is_served() {
    let world = World::new().await;
    let other: IpAddr = "127.0.7.2".parse().unwrap();
    let _other = world.sandbox("two", other);
    let limits = glovebox::gateway::tenant::Limits {
        queries: glovebox::gateway::limit::Rate::new(1, 5),
        ..Default::default()
    };
    let _ = world.tenant.swap(&world.rules(), limits, jiff::Timestamp::now());
    let mut refused = 0;
    for _ in 0..20 {
        let reply = asked(&world, SANDBOX, "tls.example.", RecordType::A).await;
        refused += usize::from(reply.metadata.response_code == ResponseCode::Refused);
    }
    assert!((13..=15).contains(&refused), "{refused}");
    let reply = asked(&world, other, "tls.example.", RecordType::A).await;
    assert_eq!(reply.answers.len(), 1);
}
