//! The readers against what a hostile sandbox may write.

use proptest::prelude::*;

use super::*;

fn report() -> KernelReport {
    KernelReport {
        v: VERSION,
        boot_id: "0f0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8".into(),
        kernel: "Linux version 6.18.0 (builder@host) #1 SMP".into(),
        gvisor: false,
        seccomp: 2,
        no_new_privs: true,
        cap_eff: "0000000000000000".into(),
        user_namespace: false,
        fence: None,
    }
}

fn record() -> ExitRecord {
    ExitRecord {
        v: VERSION,
        exit_code: Some(3),
        signal: None,
        spawn_error: None,
        oom: Some(false),
        fence_open: None,
    }
}

#[test]
fn the_lines_are_the_documented_ones() {
    assert_eq!(
        encode(&report()).unwrap(),
        "{\"v\":1,\"bootId\":\"0f0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8\",\
         \"kernel\":\"Linux version 6.18.0 (builder@host) #1 SMP\",\"gvisor\":false,\"seccomp\":2,\
         \"noNewPrivs\":true,\"capEff\":\"0000000000000000\",\"userNamespace\":false}\n"
    );
    assert_eq!(
        encode(&record()).unwrap(),
        "{\"v\":1,\"exitCode\":3,\"signal\":null,\"spawnError\":null,\"oom\":false}\n"
    );
}

#[test]
fn the_longest_report_fits_its_bound() {
    let longest = KernelReport { kernel: printable(&[b'"'; 5000]), ..report() };
    let line = encode(&longest).unwrap();
    assert!(line.len() <= MAX_LINE_BYTES, "{} bytes", line.len());
    assert_eq!(parse_report(&line), Ok(longest));
}

#[test]
fn the_longest_record_fits_its_bound() {
    let longest =
        ExitRecord { exit_code: Some(127), spawn_error: Some(printable(&[b'\\'; 5000])), ..record() };
    let line = encode(&longest).unwrap();
    assert!(line.len() <= MAX_LINE_BYTES, "{} bytes", line.len());
    assert_eq!(parse_exit_record(&line), Ok(longest));
}

#[test]
fn refuses_what_is_not_a_report() {
    let good = encode(&report()).unwrap();
    for (what, line, expected) in [
        ("empty", " \n".to_owned(), "nothing was written"),
        ("too long", " ".repeat(4097), "4097 bytes"),
        ("another version", good.replace("\"v\":1", "\"v\":2"), "version 2 is not understood"),
        ("no version", good.replace("\"v\":1,", ""), "not the expected JSON"),
        ("an unknown field", good.replace("\"v\":1", "\"v\":1,\"x\":1"), "not the expected JSON"),
        (
            "a doubled field",
            good.replace("\"gvisor\":false", "\"gvisor\":false,\"gvisor\":true"),
            "not the expected",
        ),
        ("two lines", format!("{good}{good}"), "not the expected JSON"),
        ("upper case", good.replace("0f0a", "0F0A"), "field bootId"),
        ("a short uuid", good.replace("0f0a", "0f0"), "field bootId"),
        ("a control character", good.replace("SMP", "\\u001b[31m"), "field kernel"),
        ("a long kernel", good.replace("SMP", &"x".repeat(257)), "field kernel"),
        ("a seccomp of 3", good.replace("\"seccomp\":2", "\"seccomp\":3"), "field seccomp"),
        ("short capabilities", good.replace("\"0000000000000000\"", "\"0\""), "field capEff"),
    ] {
        let error = parse_report(&line).expect_err(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
    }
}

#[test]
fn refuses_what_is_not_a_record() {
    let good = encode(&record()).unwrap();
    for (what, line, expected) in [
        ("neither", good.replace(":3", ":null"), "field exitCode"),
        ("both", good.replace("\"signal\":null", "\"signal\":9"), "field exitCode"),
        ("a code of 256", good.replace(":3", ":256"), "not the expected JSON"),
        ("a negative code", good.replace(":3", ":-1"), "not the expected JSON"),
        (
            "signal 65",
            good.replace(":3", ":null").replace("\"signal\":null", "\"signal\":65"),
            "field signal",
        ),
        ("signal 0", good.replace(":3", ":null").replace("\"signal\":null", "\"signal\":0"), "field signal"),
        ("a started spawn error", good.replace("\"spawnError\":null", "\"spawnError\":\"x\""), "126 or 127"),
    ] {
        let error = parse_exit_record(&line).expect_err(what).to_string();
        assert!(error.contains(expected), "{what}: {error}");
    }
}

#[test]
fn an_error_repeats_nothing_of_the_input() {
    let secret = "hunter2hunter2";
    for line in [format!("{{\"v\":1,\"{secret}\":1}}"), format!("{{\"v\":\"{secret}\"}}"), secret.to_owned()]
    {
        let error = parse_report(&line).unwrap_err();
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

#[test]
fn a_record_gives_the_exit_status_of_a_shell() {
    assert_eq!(record().process_exit_code(), 3);
    assert_eq!(ExitRecord { exit_code: None, signal: Some(9), ..record() }.process_exit_code(), 137);
}

proptest! {
    #[test]
    fn any_text_is_read_without_panic(input in ".{0,5000}") {
        let _ = parse_report(&input);
        let _ = parse_exit_record(&input);
    }

    #[test]
    fn any_damage_to_one_byte_is_refused_or_still_a_valid_report(at in 0_usize..240, byte in 0x20_u8..0x7f) {
        let mut line = encode(&report()).unwrap().into_bytes();
        let at = at % line.len();
        line[at] = byte;
        if let Ok(read) = parse_report(&String::from_utf8(line).unwrap()) {
            prop_assert_eq!(read.v, VERSION);
            prop_assert_eq!(parse_report(&encode(&read).unwrap()), Ok(read));
        }
    }

    #[test]
    fn printable_is_bounded_printable_and_stable(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let text = printable(&bytes);
        prop_assert!(text.len() <= MAX_TEXT_CHARS);
        prop_assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')));
        let again = printable(text.as_bytes());
        prop_assert_eq!(again.trim_end(), text.trim_end());
    }

    #[test]
    fn every_report_is_read_as_it_was_written(
        uuid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        kernel in "[ -~]{0,256}", gvisor: bool, seccomp in 0_u8..3, no_new_privs: bool,
        cap_eff in "[0-9a-f]{16}", user_namespace: bool,
    ) {
        let written = KernelReport {
            v: VERSION, boot_id: uuid, kernel, gvisor, seccomp, no_new_privs, cap_eff, user_namespace, fence: None,
        };
        let line = encode(&written).unwrap();
        prop_assert!(line.len() <= MAX_LINE_BYTES);
        prop_assert_eq!(parse_report(&line), Ok(written));
    }

    #[test]
    fn every_record_is_read_as_it_was_written(
        code: u8, signal in 1_u8..=64, signalled: bool, oom: Option<bool>, error in "[ -~]{0,256}", spawned: bool,
    ) {
        let written = if spawned {
            ExitRecord {
                v: VERSION,
                exit_code: (!signalled).then_some(code),
                signal: signalled.then_some(signal),
                spawn_error: None,
                oom,
                fence_open: None,
            }
        } else {
            ExitRecord { v: VERSION, exit_code: Some(127), signal: None, spawn_error: Some(error), oom, fence_open: None }
        };
        prop_assert_eq!(parse_exit_record(&encode(&written).unwrap()), Ok(written));
    }
}
