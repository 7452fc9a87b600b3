//! How a workload starts: found or not, with which environment, descriptors, signals and session.

use std::process::Command;

use crate::container::Recipe;

#[test]
fn a_command_that_is_not_there_is_127_and_says_so() {
    let ended = Recipe::new().run(&["no-such-command", "x"]).end();
    assert_eq!(ended.code, 127);
    let record = ended.record();
    assert_eq!(record.exit_code, Some(127));
    let error = record.spawn_error.unwrap();
    assert!(error.contains("no-such-command: no such command in PATH (/usr/bin:"), "{error}");
    assert!(ended.stderr.contains(&error), "{}", ended.stderr);
}

#[test]
fn a_path_that_is_not_there_is_127() {
    let ended = Recipe::new().run(&["/no/such/program"]).end();
    assert_eq!(ended.code, 127);
    assert_eq!(ended.record().spawn_error.unwrap(), "/no/such/program: no such file");
}

#[test]
fn a_missing_interpreter_is_127_and_is_told_from_a_missing_file() {
    let recipe = Recipe::new();
    let script = recipe.scratch().file("script", "#!/no/such/shell\n", 0o755);
    let ended = recipe.run(&[&script]).end();
    assert_eq!(ended.code, 127);
    let error = ended.record().spawn_error.unwrap();
    assert!(error.contains("its interpreter is missing"), "{error}");
}

#[test]
fn what_cannot_be_executed_is_126_each_for_its_reason() {
    for (content, mode, expected) in [
        ("#!/bin/sh\n", 0o644, "not executable by this user"),
        ("echo no first line\n", 0o755, "a first line that begins with #!"),
    ] {
        let recipe = Recipe::new();
        let script = recipe.scratch().file("script", content, mode);
        let ended = recipe.run(&[&script]).end();
        assert_eq!(ended.code, 126, "{expected}");
        let error = ended.record().spawn_error.unwrap();
        assert!(error.contains(expected), "{error}");
    }
    let ended = Recipe::new().run(&["/usr"]).end();
    assert_eq!((ended.code, ended.record().spawn_error.as_deref()), (126, Some("/usr: is a directory")));
}

#[test]
fn an_unexecutable_file_in_path_is_126_only_when_no_other_serves() {
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    recipe.scratch().file("tool", "#!/bin/sh\n", 0o644);
    recipe.scratch().file("true", "#!/bin/sh\nexit 9\n", 0o644);
    let ended = recipe.variable("PATH", &format!("{dir}:/usr/bin:/bin")).run(&["true"]).end();
    assert_eq!(ended.code, 0);
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    recipe.scratch().file("tool", "#!/bin/sh\n", 0o644);
    let ended = recipe.option("--path-append", &dir).run(&["tool"]).end();
    assert_eq!(ended.code, 126);
}

#[test]
fn no_room_for_a_process_is_126_and_says_what_to_raise() {
    let ended = Recipe::new().before("prlimit --pid $$ --nproc=0").run(&["/bin/true"]).end();
    assert_eq!(ended.code, 126, "{}", ended.stderr);
    let error = ended.record().spawn_error.unwrap();
    assert!(error.contains("raise the limit of processes"), "{error}");
}

#[test]
fn the_environment_is_the_users_own_with_the_appended_path() {
    let ended = Recipe::new()
        .variable("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .variable("KUBERNETES_PORT", "tcp://10.96.0.1:443")
        .variable("GLOVEBOX_X", "1")
        .variable("WEB_SERVICE_HOST", "10.96.0.2")
        .variable("WEB_SERVICE_PORT", "80")
        .variable("WEB_PORT", "tcp://10.96.0.2:80")
        .variable("DB_PORT", "5432")
        .variable("TASK", "a b\nc")
        .option("--path-append", "/workspace/.local/bin")
        .run(&["env", "-0"])
        .end();
    let mut variables: Vec<_> = ended.stdout.split_terminator('\0').collect();
    variables.retain(|variable| !variable.starts_with("PWD="));
    variables.sort_unstable();
    assert_eq!(
        variables,
        ["DB_PORT=5432", "PATH=/usr/bin:/bin:/usr/sbin:/sbin:/workspace/.local/bin", "TASK=a b\nc"]
    );
}

#[test]
fn a_command_is_found_in_an_appended_directory() {
    let recipe = Recipe::new();
    recipe.scratch().file("mine", "#!/bin/sh\nexit 11\n", 0o755);
    let dir = recipe.scratch().path().to_str().unwrap().to_owned();
    assert_eq!(recipe.option("--path-append", &dir).run(&["mine"]).end().code, 11);
}

#[test]
fn no_descriptor_but_the_standard_three_reaches_the_workload() {
    // Descriptor 7 is left open by the runtime; `ls` itself opens 3 for the listing.
    let ended = Recipe::new().before("exec 7</etc/passwd").run(&["ls", "/proc/self/fd"]).end();
    assert_eq!(ended.stdout, "0\n1\n2\n3\n");
    let control = Command::new("sh").args(["-c", "exec 7</etc/passwd; ls /proc/self/fd"]).output().unwrap();
    assert!(String::from_utf8(control.stdout).unwrap().contains("7\n"), "the control must see descriptor 7");
}

#[test]
fn no_signal_is_blocked_or_ignored_though_the_runtime_ignored_some() {
    let ended = Recipe::new().before("trap '' HUP USR1 PIPE").run(&["cat", "/proc/self/status"]).end();
    for key in ["SigBlk:", "SigIgn:", "SigPnd:", "ShdPnd:"] {
        let line = ended.stdout.lines().find(|line| line.starts_with(key)).unwrap();
        let set = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // 32 and 33 belong to the C library, whose spawn ignores them until the program's own threads set them up.
        let internal = 0b11 << 31;
        assert_eq!(set & !internal, 0, "{line}");
    }
}

#[test]
fn the_workload_leads_a_session_of_its_own() {
    let ended = Recipe::new().shell("cat /proc/$$/stat");
    let ended = ended.end();
    let (head, tail) = ended.stdout.rsplit_once(") ").unwrap();
    let pid = head.split(' ').next().unwrap();
    let fields: Vec<_> = tail.split(' ').collect();
    assert_eq!(
        (fields[1], fields[2], fields[3]),
        ("1", pid, pid),
        "parent, group, session: {}",
        ended.stdout
    );
}

#[test]
fn the_workload_cannot_look_into_process_1() {
    let script = "cat /proc/$$/environ >/dev/null && echo own; cat /proc/1/environ /proc/1/maps 2>&1; ls /proc/1/fd 2>&1";
    let ended = Recipe::new().variable("CONTROL", "1").shell(script).end();
    assert_eq!(ended.stdout.matches("Permission denied").count(), 3, "{}", ended.stdout);
    assert!(ended.stdout.starts_with("own\n"), "{}", ended.stdout);
}

#[test]
fn a_missing_working_directory_is_made() {
    let recipe = Recipe::new();
    let dir = recipe.scratch().path().join("a/b");
    let ended = recipe.option("--cwd", dir.to_str().unwrap()).run(&["pwd"]).end();
    assert_eq!(ended.stdout.trim(), dir.to_str().unwrap());
}

#[test]
fn a_working_directory_that_cannot_be_is_126_and_named() {
    let ended = Recipe::new().option("--cwd", "/proc/no").run(&["pwd"]).end();
    assert_eq!(ended.code, 126);
    let error = ended.record().spawn_error.unwrap();
    assert!(error.starts_with("cannot use /proc/no as working directory"), "{error}");
}

#[test]
fn outside_a_container_it_refuses_and_kills_nobody() {
    let mut bystander = Command::new("sleep").arg("100").spawn().unwrap();
    for arguments in [&["run", "--", "true"][..], &["idle"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_glovebox-agent")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(70));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("must be process 1 of a container"), "{stderr}");
    }
    assert!(bystander.try_wait().unwrap().is_none());
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_wrong_command_line_is_64_and_help_and_version_are_0() {
    let agent =
        |argument: &str| Command::new(env!("CARGO_BIN_EXE_glovebox-agent")).arg(argument).output().unwrap();
    let wrong = agent("--frobnicate");
    assert_eq!(wrong.status.code(), Some(64));
    assert!(String::from_utf8(wrong.stderr).unwrap().contains("see glovebox-agent --help"));
    let help = agent("--help");
    assert!(help.status.success() && String::from_utf8(help.stdout).unwrap().contains("USAGE"));
    let version = String::from_utf8(agent("--version").stdout).unwrap();
    assert_eq!(version, format!("glovebox-agent {}\n", env!("CARGO_PKG_VERSION")));
}

/// A certificate in shape; nobody looks further here.
const AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nMIIBours\n-----END CERTIFICATE-----\n";

#[test]
fn whom_a_sandbox_trusts_stands_there_before_its_first_instruction() {
    let recipe = Recipe::new();
    let directory = recipe.scratch().path().to_str().unwrap().to_owned();
    let recipe = recipe.option("--trust-authority", AUTHORITY).option("--trust-dir", &directory);
    let ended = recipe.shell(&format!("head -3 {directory}/ca-bundle.crt; cat {directory}/ca.crt")).end();
    assert_eq!((ended.code, ended.stdout), (0, AUTHORITY.repeat(2)), "{}", ended.stderr);
}

#[test]
fn a_sandbox_that_would_trust_nobody_does_not_start_and_says_why() {
    let recipe = Recipe::new().option("--trust-authority", AUTHORITY).option("--trust-dir", "/proc");
    let ended = recipe.shell("echo started").end();
    assert_eq!((ended.code, ended.stdout.as_str()), (126, ""));
    let error = ended.record().spawn_error.unwrap();
    assert!(error.starts_with("cannot write /proc/ca.crt: "), "{error}");
    let recipe = Recipe::new().option("--trust-authority", AUTHORITY).option("--trust-dir", "/proc");
    assert_eq!(recipe.idle().end().record().spawn_error, Some(error));
}
