//! The command line, right and wrong.

use super::*;

fn words(line: &[&str]) -> Vec<OsString> {
    line.iter().map(OsString::from).collect()
}

const INIT: [&str; 9] =
    ["init", "--isolation", "VirtualMachine", "--agent-dir", "/a", "--home-dir", "/h", "--workspace", "/w"];

#[test]
fn init_takes_its_options() {
    let mut line = INIT.to_vec();
    line.extend(["--accept-weaker", "--home-mountpoint", ".cache", "--home-mountpoint", ".config/pip"]);
    line.extend(["--workspace-mountpoint", ".git/hooks", "--git-safe-directory", "/data"]);
    let Command::Init(init) = parse(words(&line)).unwrap() else { panic!("not init") };
    assert_eq!(init.isolation, Isolation::VirtualMachine);
    assert!(init.accept_weaker);
    assert_eq!(init.home_mountpoints, [PathBuf::from(".cache"), PathBuf::from(".config/pip")]);
    assert_eq!(init.workspace_mountpoints, [PathBuf::from(".git/hooks")]);
    assert_eq!(init.git_safe_directories, [PathBuf::from("/data")]);
    assert_eq!(init.termination_log, PathBuf::from(TERMINATION_LOG));
}

#[test]
fn run_passes_everything_after_the_dashes() {
    let line = ["run", "--grace", "50", "--path-append", "/x", "--cwd", "/w", "--", "sh", "--", "--grace"];
    let Command::Run(run) = parse(words(&line)).unwrap() else { panic!("not run") };
    assert_eq!(run.command, words(&["sh", "--", "--grace"]));
    assert_eq!(run.grace, Duration::from_millis(50));
    assert_eq!((run.cwd, run.path_append), (Some("/w".into()), vec!["/x".into()]));
}

#[test]
fn run_and_idle_take_whom_to_trust() {
    let authority = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    let around = format!("a word\n{authority}another");
    let trust = Some(TrustArgs { authority: authority.into(), directory: "/t".into() });
    let options = ["--trust-authority", &around, "--trust-dir", "/t"];
    let Command::Run(run) = parse(words(&[&["run"], &options[..], &["--", "sh"]].concat())).unwrap() else {
        panic!("not run")
    };
    assert_eq!(run.trust, trust);
    let Command::Idle(idle) = parse(words(&[&["idle"], &options[..]].concat())).unwrap() else {
        panic!("not idle")
    };
    assert_eq!(idle.trust, trust);
}

const KEY: &str = "O2onvM62pC1io6jQKm8Nc2UyFXcd4kOmOsBIoYtZ2ik=";
const CALLS: [&str; 6] = ["--calls-listen", "10.0.0.1:8088", "--calls-uid", "u-1", "--calls-key", KEY];

#[test]
fn run_and_idle_take_where_calls_come_in() {
    let more = ["--calls-key", "A6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=", "--calls-most", "3"];
    let more = [&more[..], &["--calls-workspace", "/w"]].concat();
    let Command::Run(run) = parse(words(&[&["run"], &CALLS[..], &more, &["--", "sh"]].concat())).unwrap()
    else {
        panic!("not run")
    };
    let calls = run.calls.unwrap();
    assert_eq!((calls.listen, calls.uid.as_str()), ("10.0.0.1:8088".parse().unwrap(), "u-1"));
    assert_eq!((calls.keys.len(), calls.most), (2, 3));
    assert_eq!(calls.workspace, Some("/w".into()));
    let Command::Idle(idle) = parse(words(&[&["idle"], &CALLS[..]].concat())).unwrap() else {
        panic!("not idle")
    };
    assert_eq!(idle.calls.map(|calls| calls.most), Some(1024));
    assert_eq!(
        parse(words(&["run", "--", "sh"]))
            .map(|run| matches!(run, Command::Run(run) if run.calls.is_none()))
            .ok(),
        Some(true)
    );
}

#[test]
fn what_the_agent_starts_for_itself_is_read() {
    let Command::Stage(stage) = parse(words(&[
        "stage",
        "--terminal",
        "--no-network",
        "--write-nowhere",
        "--write",
        "/w",
        "--file",
        "/bin/sh",
        "--",
        "sh",
        "-c",
        "--x",
    ]))
    .unwrap() else {
        panic!("not stage")
    };
    assert!(stage.terminal && stage.no_network);
    assert_eq!((stage.write, stage.file), (Some(vec!["/w".into()]), "/bin/sh".into()));
    assert_eq!(stage.command, words(&["sh", "-c", "--x"]));
    let nowhere = parse(words(&["stage", "--write-nowhere", "--file", "x", "--", "x"])).unwrap();
    assert!(matches!(nowhere, Command::Stage(stage) if stage.write == Some(Vec::new()) && !stage.terminal));
    assert_eq!(parse(words(&["keep", "--", "sh", "--"])).unwrap(), Command::Keep(words(&["sh", "--"])));
    assert_eq!(parse(words(&["call"])).unwrap(), Command::Call);
}

#[test]
fn help_and_version_are_found_anywhere_they_belong() {
    for line in [vec!["--help"], vec!["init", "--help"], vec!["run", "--help"], vec!["idle", "--help"]] {
        assert_eq!(parse(words(&line)).unwrap(), Command::Help);
    }
    assert_eq!(parse(words(&["--version"])).unwrap(), Command::Version);
}

const WITH_KEY: &str =
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----\n";

#[test]
fn each_wrong_line_names_what_is_wrong() {
    let with = |more: &[&'static str]| [&INIT[..], more].concat();
    for (line, expected) in [
        (vec![], "no command given"),
        (vec!["walk"], "unknown command walk"),
        (vec!["init"], "init needs --isolation"),
        (INIT[..7].to_vec(), "init needs --workspace"),
        (with(&["--isolation", "Virtual"]), "--isolation is \"Virtual\""),
        (with(&["--isolation"]), "--isolation needs a value"),
        (with(&["--home-mountpoint", "../x"]), "--home-mountpoint is \"../x\""),
        (with(&["--home-mountpoint", "a/../../x"]), "a relative path without .."),
        (with(&["--home-mountpoint", "/x"]), "a relative path"),
        (with(&["--home-mountpoint", ""]), "a relative path"),
        (with(&["--workspace", "w"]), "an absolute path"),
        (with(&["--agent-dir", "/a/../b"]), "an absolute path without .."),
        (with(&["--frob"]), "unknown option --frob of init"),
        (vec!["run"], "run needs a command"),
        (vec!["run", "--"], "run needs a command"),
        (vec!["run", "sh"], "unexpected argument sh of run"),
        (vec!["run", "--grace", "-1", "--", "sh"], "milliseconds from 0 to 600000"),
        (vec!["run", "--grace", "600001", "--", "sh"], "milliseconds from 0 to 600000"),
        (vec!["idle", "--cwd", "/x"], "unknown option --cwd of idle"),
        (vec!["idle", "--trust-dir", "/x"], "go together"),
        (vec!["keep"], "keep needs a command"),
        (vec!["call", "--x"], "unknown option --x of call"),
        (vec!["stage", "--terminal"], "stage needs a command"),
        ([&["idle"], &CALLS[..4]].concat(), "go together"),
        ([&["idle"], &CALLS[2..]].concat(), "go together"),
        (vec!["idle", "--calls-most", "8"], "go together"),
        (vec!["idle", "--calls-most", "0"], "a number from 1 to 1024"),
        (vec!["idle", "--calls-uid", "a b"], "letters, digits"),
        (vec!["idle", "--calls-uid", ""], "letters, digits"),
        (vec!["idle", "--calls-listen", "8088"], "an address with a port"),
        (vec!["idle", "--calls-key", "AAAA"], "an Ed25519 public key"),
        // A key of small order, for which anybody can make up a signature.
        (
            vec!["idle", "--calls-key", "AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="],
            "an Ed25519 public key",
        ),
        (vec!["idle", "--calls-key", &KEY[..43]], "an Ed25519 public key"),
        (vec!["idle", "--trust-dir", "x"], "an absolute path"),
        (vec!["idle", "--trust-authority", "x", "--trust-dir", "/x"], "certificates as PEM"),
        (vec!["idle", "--trust-authority", WITH_KEY, "--trust-dir", "/x"], "without a key"),
    ] {
        let fault = parse(words(&line)).expect_err(&format!("{line:?}"));
        assert_eq!(fault.exit_code(), 64, "{line:?}");
        assert!(fault.to_string().contains(expected), "{line:?}: {fault}");
    }
}

#[test]
fn a_repeatable_option_has_a_bound() {
    let mut line = vec!["run"];
    line.extend(["--path-append", "/x"].repeat(65));
    let fault = parse(words(&line)).unwrap_err();
    assert!(fault.to_string().contains("more than 64 times"), "{fault}");
}

#[test]
fn the_help_names_every_option() {
    for option in [
        "--isolation",
        "--accept-weaker",
        "--agent-dir",
        "--home-dir",
        "--home-mountpoint",
        "--workspace",
        "--workspace-mountpoint",
        "--git-safe-directory",
        "--cwd",
        "--path-append",
        "--grace",
        "--trust-authority",
        "--trust-dir",
        "--calls-listen",
        "--calls-uid",
        "--calls-key",
        "--calls-most",
        "--termination-log",
        "--help",
        "--version",
    ] {
        assert!(HELP.contains(option), "{option}");
    }
}
