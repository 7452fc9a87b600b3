//! Packets and their answers.

use super::*;
use hickory_proto::{
    op::{Edns, Metadata, OpCode},
    rr::{
        RData, Record,
        rdata::{
            SOA,
            opt::{EdnsCode, EdnsOption},
        },
    },
};
use proptest::prelude::*;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 9);

fn query(name: &str, kind: RecordType, edns: bool) -> Message {
    let mut message = Message::query();
    message.metadata.id = 4711;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
    if edns {
        message.set_edns(Edns::new());
    }
    message
}

/// Knows `good.example` alone.
fn knows(host: Named) -> Known {
    match host {
        Ok(host) if host.as_str() == "good.example" => Known::Here(HERE),
        _ => Known::Denied("no rule names it\n".into()),
    }
}

fn asked(message: &Message) -> (Message, Outcome) {
    let (bytes, outcome) = answer(&message.to_vec().unwrap(), SMALL, knows).unwrap();
    assert!(bytes.len() <= SMALL, "{}", bytes.len());
    (Message::from_vec(&bytes).unwrap(), outcome)
}

#[test]
fn steers_known_names_whatever_their_case() {
    for name in ["good.example.", "GOOD.eXample."] {
        let (reply, outcome) = asked(&query(name, RecordType::A, false));
        assert_eq!((outcome, reply.metadata.id), (Outcome::Address, 4711));
        assert_eq!(reply.answers[0].data, RData::A(HERE.into()));
        assert!(reply.answers[0].ttl <= 10 && reply.metadata.authoritative);
        assert!(!reply.metadata.recursion_available && reply.edns.is_none());
    }
}

#[test]
fn has_nothing_else_of_known_names() {
    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let (reply, outcome) = asked(&query("good.example.", kind, true));
        assert_eq!(outcome, Outcome::NoData);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        assert!(reply.answers.is_empty() && reply.authorities.len() == 1 && reply.metadata.authoritative);
    }
}

#[test]
fn says_why_a_name_is_not_there() {
    for kind in [RecordType::A, RecordType::AAAA, RecordType::HTTPS] {
        let (reply, outcome) = asked(&query("evil.example.", kind, true));
        assert_eq!((outcome, reply.metadata.response_code), (Outcome::Denied, ResponseCode::NXDomain));
        let RData::SOA(soa) = &reply.authorities[0].data else { panic!() };
        assert_eq!((soa.minimum, reply.authorities[0].ttl), (5, 5));
        let options = reply.edns.as_ref().unwrap();
        let Some(EdnsOption::Unknown(15, ede)) = options.option(EdnsCode::from(15)) else {
            panic!("{options:?}")
        };
        assert_eq!(ede.as_slice(), b"\x00\x0fno rule names it");
    }
    let (reply, _) = asked(&query("evil.example.", RecordType::A, false));
    assert!(reply.edns.is_none(), "no EDNS to whom did not speak it");
    let long = format!("{0}.{0}.{0}.{1}.", "a".repeat(63), "b".repeat(61));
    let (reply, _) = asked(&query(&long, RecordType::A, true));
    assert!(reply.edns.is_some() && !reply.metadata.truncation);
}

#[test]
fn every_other_type_and_class_is_refused_unasked() {
    for number in (0..=u16::MAX).step_by(7).chain(0..300) {
        let kind = RecordType::from(number);
        if matches!(number, 1 | 28 | 41 | 64 | 65) {
            continue;
        }
        let mut bytes = query("good.example.", RecordType::A, false).to_vec().unwrap();
        let at = bytes.len() - 4;
        bytes[at..at + 2].copy_from_slice(&number.to_be_bytes());
        let (_, outcome) = answer(&bytes, SMALL, |_| panic!("asked for {kind}")).unwrap();
        assert!(matches!(outcome, Outcome::Refused | Outcome::Malformed), "{number}");
    }
    for class in [0_u16, 2, 3, 4, 254, 255, 256, 0x8001] {
        let mut bytes = query("good.example.", RecordType::A, false).to_vec().unwrap();
        let at = bytes.len() - 2;
        bytes[at..].copy_from_slice(&class.to_be_bytes());
        let (_, outcome) = answer(&bytes, SMALL, |_| panic!("asked for class {class}")).unwrap();
        assert!(matches!(outcome, Outcome::Refused | Outcome::Malformed), "{class}");
    }
}

#[test]
fn other_packets_get_a_header_or_nothing() {
    let good = query("good.example.", RecordType::A, false).to_vec().unwrap();
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        answer(&bytes, SMALL, knows)
    };
    assert_eq!(with(&|bytes| bytes[2] |= 0x80), None, "an answer is never answered");
    assert_eq!(answer(&good[..11], SMALL, knows), None);
    for opcode in 1..16_u8 {
        let (reply, outcome) = with(&|bytes| bytes[2] |= opcode << 3).unwrap();
        assert_eq!((outcome, reply[3] & 15, reply.len()), (Outcome::NotImplemented, 4, 12));
        assert_eq!((reply[2] >> 3) & 15, opcode);
    }
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let malformed: [Change<'_>; 7] = [
        &|bytes| bytes[5] = 0,
        &|bytes| bytes[5] = 2,
        &|bytes| bytes[4] = 255,
        &|bytes| bytes[7] = 1,
        &|bytes| bytes.truncate(20),
        &|bytes| bytes[12] = 0xc0,
        &|bytes| bytes[12] = 64,
    ];
    for (at, change) in malformed.iter().enumerate() {
        let (reply, outcome) = with(change).unwrap();
        assert_eq!((outcome, reply[3] & 15, &reply[..2]), (Outcome::Malformed, 1, &good[..2]), "{at}");
    }
}

#[test]
fn a_byte_that_no_host_has_is_denied_whatever_it_looks_like() {
    for byte in 0..=255_u8 {
        let mut bytes = query("goodx.example.", RecordType::A, true).to_vec().unwrap();
        bytes[17] = byte;
        let host_byte = byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let mut seen = None;
        let answered = answer(&bytes, SMALL, |host| {
            seen = Some(host.is_ok());
            Known::Denied(String::new())
        });
        assert!(answered.is_some());
        assert_eq!(seen, Some(host_byte && byte != b'-'), "{byte}");
    }
    let dotted = Name::from_labels([b"good.example".as_slice()]).unwrap();
    assert!(host(&dotted).is_err(), "a dot within a label is no end of one");
}

#[test]
fn another_version_of_edns_is_refused() {
    let mut message = query("good.example.", RecordType::A, true);
    message.edns.as_mut().unwrap().set_version(1);
    let (reply, outcome) = asked(&message);
    assert_eq!((outcome, reply.edns.unwrap().rcode_high()), (Outcome::Malformed, 1));
}

/// The same answer, by a general encoder.
fn encoded_by_the_library(query: &Message, reply: &Reply) -> Vec<u8> {
    let question = query.queries[0].clone();
    let mut message = Message::response(query.metadata.id, OpCode::Query);
    message.metadata = Metadata::response_from_request(&query.metadata);
    message.metadata.response_code = reply.code;
    message.metadata.authoritative = reply.authoritative;
    message.edns = query.edns.as_ref().map(|_| {
        let mut edns = Edns::new();
        edns.set_max_payload(LARGE);
        if let Some(words) = &reply.words {
            let data = [&BLOCKED.to_be_bytes(), words.as_bytes()].concat();
            edns.options_mut().insert(EdnsOption::Unknown(EDE, data));
        }
        edns
    });
    if let Some(address) = reply.address {
        message.add_answer(Record::from_rdata(question.name.clone(), TTL, RData::A(address.into())));
    }
    if reply.negative {
        let root = Name::root();
        let soa = SOA::new(root.clone(), root.clone(), 1, 3600, 600, 86400, NEGATIVE_TTL);
        message.add_authority(Record::from_rdata(root, NEGATIVE_TTL, RData::SOA(soa)));
    }
    message.add_query(question);
    message.to_vec().unwrap()
}

proptest! {
    #[test]
    fn an_answer_by_hand_is_that_of_the_library(
        labels in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..30), 1..8),
        kind in any::<u16>(), edns in any::<bool>(), recursion in any::<bool>(), checking in any::<bool>(),
        code in prop::sample::select(&[0_u16, 3, 5, 16]), authoritative in any::<bool>(),
        address in any::<Option<[u8; 4]>>(), negative in any::<bool>(), words in "[ -~]{0,160}",
    ) {
        let mut query = query("x.", RecordType::A, edns);
        query.queries[0] = Query::query(Name::from_labels(labels).unwrap(), kind.into());
        query.metadata.recursion_desired = recursion;
        query.metadata.checking_disabled = checking;
        let reply = Reply {
            // Without extensions there are no upper bits.
            code: if edns { code } else { code & 15 }.into(),
            authoritative,
            address: address.map(Into::into),
            negative,
            words: (!words.is_empty()).then_some(words),
        };
        prop_assert_eq!(reply.encode(&query, &query.queries[0]), encoded_by_the_library(&query, &reply));
    }

    #[test]
    fn never_panics_and_never_grows(packet in prop::collection::vec(any::<u8>(), 0..600)) {
        if let Some((reply, _)) = answer(&packet, SMALL, knows) {
            prop_assert!(reply.len() <= usize::from(LARGE));
            prop_assert_eq!(&reply[..2], &packet[..2]);
        }
    }
}
