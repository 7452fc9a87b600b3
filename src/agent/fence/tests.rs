//! Rounds against listeners of this machine.

use std::net::{TcpListener, UdpSocket};
use std::thread;

use super::*;

/// A port of this machine that nobody listens on.
fn closed() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Answers one question after the other with this response code, or not at all.
fn dns(code: Option<u8>) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            if let Some(code) = code {
                packet[2] |= 0x80;
                packet[3] = code;
                socket.send_to(&packet[..length], from).unwrap();
            }
        }
    });
    address
}

fn fence(forbidden: &[SocketAddr], gateway: &[SocketAddr], dns: Option<SocketAddr>) -> FenceArgs {
    FenceArgs {
        forbidden: forbidden.to_vec(),
        gateway: gateway.to_vec(),
        dns,
        within: Duration::from_millis(400),
        ..FenceArgs::default()
    }
}

#[test]
fn closed_is_only_what_the_gateway_answered_beside() {
    let (_alive, gateway) = listener();
    assert_eq!(round(&fence(&[closed()], &[gateway], Some(dns(Some(3))))), Round::Closed);
    let away = closed();
    assert_eq!(round(&fence(&[closed()], &[away], None)), Round::Missing(away));
}

#[test]
fn one_open_address_is_enough_even_where_the_gateway_is_away() {
    let (_tripwire, open) = listener();
    let (_alive, gateway) = listener();
    assert_eq!(round(&fence(&[closed(), open], &[gateway], None)), Round::Open(open));
    assert_eq!(round(&fence(&[open], &[closed()], None)), Round::Open(open));
}

#[test]
fn a_name_server_that_is_silent_or_does_not_know_us_is_missing() {
    let (_alive, gateway) = listener();
    for server in [dns(None), dns(Some(REFUSED))] {
        assert_eq!(round(&fence(&[closed()], &[gateway], Some(server))), Round::Missing(server));
    }
}

#[test]
fn an_answer_to_another_question_is_none() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = socket.local_addr().unwrap();
    thread::spawn(move || {
        let mut packet = [0; 512];
        while let Ok((length, from)) = socket.recv_from(&mut packet) {
            packet[0] = !packet[0];
            packet[2] |= 0x80;
            socket.send_to(&packet[..length], from).unwrap();
        }
    });
    assert_eq!(round(&fence(&[], &[], Some(server))), Round::Missing(server));
}

#[test]
fn proof_takes_rounds_in_a_row_and_says_what_was_wrong() {
    let (_alive, gateway) = listener();
    assert_eq!(prove(&fence(&[closed()], &[gateway], None)).rounds, ROUNDS);
    let (_tripwire, open) = listener();
    let proof = prove(&fence(&[open], &[gateway], None));
    assert_eq!((proof.rounds, proof.open), (0, Some(open.to_string())));
    let away = closed();
    let proof = prove(&fence(&[closed()], &[away], None));
    assert_eq!((proof.rounds, proof.missing), (0, Some(away.to_string())));
}

#[test]
fn what_fails_here_says_nothing_of_the_network() {
    for errno in [Errno::MFILE, Errno::ADDRNOTAVAIL, Errno::NOMEM] {
        assert_eq!(failed(errno), Outcome::Blind);
    }
    for errno in [Errno::CONNREFUSED, Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::PERM, Errno::TIMEDOUT] {
        assert_eq!(failed(errno), Outcome::Refused);
    }
}
