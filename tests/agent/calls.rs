//! Calls that end by themselves: what they are given, what comes back, and that nothing is left.

use std::time::{Duration, Instant};

use glovebox::call::{Kind, Outcome, Size};
use nix::sys::signal::Signal;

use crate::container::{Recipe, eventually};
use crate::processes::{below, descriptors, resident_kb};
use crate::session::{Call, Sandbox, UID, command, key, shell};

#[test]
fn what_a_command_says_and_how_it_ends_comes_back() {
    let mut sandbox = Sandbox::idle(Recipe::new().variable("OWN", "workload's"));
    let ended = sandbox.run(&shell("echo out; echo err >&2; exit 7"));
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("out\n", "err\n"));
    let result = ended.result;
    assert_eq!((result.outcome, result.exit_code, result.signal), (Outcome::Exited, Some(7), None));
    assert_eq!((result.stdout_bytes, result.stderr_bytes, result.truncated), (4, 4, false));
    assert_eq!((result.write, result.network), (None, None));
    for signal in [6, 9, 40] {
        let result = sandbox.run(&shell(&format!("kill -{signal} $$"))).result;
        assert_eq!((result.outcome, result.exit_code), (Outcome::Signalled, None));
        assert_eq!(result.signal, Some(signal));
    }
    sandbox.container.signal(Signal::SIGTERM);
    assert_eq!(sandbox.container.end().code, 0);
}

#[test]
fn a_call_has_the_workloads_variables_its_own_and_nothing_of_the_agents() {
    let recipe = Recipe::new()
        .variable("OWN", "workload's")
        .variable("CHANGED", "before")
        .variable("KUBERNETES_SERVICE_HOST", "10.96.0.1")
        .before("exec 7</dev/null");
    let sandbox = Sandbox::idle(recipe);
    let mut exec = shell(
        "env | sort | grep -v '^_='; ls -l /proc/self/fd | wc -l; pwd; cat; grep Sig /proc/self/status",
    );
    exec.env = [("CHANGED".into(), "after".into()), ("NEW".into(), "a b\n".into())].into();
    exec.cwd = Some("/usr".into());
    let ended = sandbox.run(&exec);
    let text = ended.stdout;
    assert!(text.contains("CHANGED=after\nNEW=a b\n"), "{text}");
    assert!(text.contains("OWN=workload's\n") && !text.contains("KUBERNETES"), "{text}");
    // 0, 1, 2, that of the listing, and a line of its own for the total.
    assert!(text.contains("\n5\n/usr\n"), "{text}");
    for key in ["SigBlk:", "SigIgn:"] {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap();
        let set = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        // The C library keeps 32 and 33 to itself.
        assert_eq!(set & !(0b11 << 31), 0, "{line}");
    }
}

#[test]
fn standard_input_arrives_whole_and_ends() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut exec = shell("wc -c; echo done");
    exec.stdin = true;
    let mut call = sandbox.call(&exec);
    for _ in 0..64 {
        call.send(Kind::Stdin, &vec![b'x'; 32 * 1024]);
    }
    call.send(Kind::Stdin, &[]);
    assert_eq!(call.end().stdout.split_whitespace().collect::<Vec<_>>(), ["2097152", "done"]);
    // What nobody reads harms nobody.
    exec.command[2] = "exec <&-; sleep 0.2; echo closed".into();
    let mut call = sandbox.call(&exec);
    for _ in 0..16 {
        call.send(Kind::Stdin, &vec![b'x'; 32 * 1024]);
    }
    assert_eq!(call.end().stdout, "closed\n");
}

#[test]
fn standard_input_that_comes_with_the_request_is_heard() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut exec = command(&["cat"]);
    exec.stdin = true;
    let more: [(Kind, &[u8]); 2] = [(Kind::Stdin, b"at once"), (Kind::Stdin, b"")];
    let mut call = Call::open_and(sandbox.connect(), &key(1), UID, &exec, &more);
    assert_eq!(call.frame().kind, Kind::Started);
    assert_eq!(call.end().stdout, "at once");
}

#[test]
fn what_cannot_be_started_says_why() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut nowhere = command(&["true"]);
    nowhere.cwd = Some("/no/such/directory".into());
    let mut on_terminal = command(&["/etc"]);
    on_terminal.terminal = Some(Size { rows: 1, columns: 1 });
    for (exec, code, says) in [
        (command(&["no-such-command"]), 127, "no such command in PATH"),
        (command(&["/no/such/program"]), 127, "no such file"),
        (command(&["/etc/passwd"]), 126, "not executable by this user"),
        (nowhere, 126, "cannot use /no/such/directory as working directory"),
        (on_terminal, 126, "is a directory"),
    ] {
        let result = sandbox.run(&exec).result;
        assert_eq!((result.outcome, result.exit_code), (Outcome::NotStarted, Some(code)), "{says}");
        let message = result.message.unwrap();
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn output_beyond_the_cap_is_counted_and_dropped_at_full_speed() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut exec = shell("echo first; head -c 1000000000 /dev/zero; echo err >&2");
    exec.max_output_bytes = 100;
    let ended = sandbox.run(&exec);
    assert_eq!(ended.stdout.len() + ended.stderr.len(), 100);
    assert!(ended.stdout.starts_with("first\n\0"));
    let result = ended.result;
    assert_eq!((result.outcome, result.truncated), (Outcome::Exited, true));
    assert_eq!((result.stdout_bytes, result.stderr_bytes), (1_000_000_006, 4));
    println!("1 GB drained in {} ms", result.duration_ms);
    exec.max_output_bytes = 0;
    let ended = sandbox.run(&exec);
    assert_eq!((ended.stdout.as_str(), ended.result.truncated), ("", true));
}

#[test]
fn output_within_the_cap_arrives_whole_even_to_a_slow_reader() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut exec = shell("head -c 30000000 /dev/zero | tr '\\0' y; echo end");
    exec.max_output_bytes = 40_000_000;
    let call = sandbox.call(&exec);
    // Long enough for all buffers in between to be full.
    std::thread::sleep(Duration::from_millis(300));
    let ended = call.end();
    assert_eq!(ended.stdout.len(), 30_000_004);
    assert!(ended.stdout.ends_with("yend\n"));
    assert_eq!((ended.result.stdout_bytes, ended.result.truncated), (30_000_004, false));
}

#[test]
fn a_signal_reaches_the_commands_group() {
    let sandbox = Sandbox::idle(Recipe::new());
    let script = "trap 'trap \"\" USR1; wait; echo main; exit 3' USR1
        sh -c 'trap \"echo child; exit\" USR1; echo ready; while :; do sleep 0.02; done' & wait; wait; exit 1";
    let mut call = sandbox.call(&shell(script));
    call.until("ready\n");
    for number in [0, 200, 10] {
        call.send(Kind::Signal, &[number]);
    }
    let ended = call.end();
    assert_eq!((ended.stdout.as_str(), ended.result.exit_code), ("child\nmain\n", Some(3)));
}

#[test]
fn a_terminal_is_the_commands_own_and_can_be_resized() {
    let sandbox = Sandbox::idle(Recipe::new());
    let mut exec = shell(
        "trap 'stty size; exit 4' WINCH; tty; stty size; echo $TERM; ps -o stat= $$ >/dev/tty; echo ready; while :; do sleep 0.02; done",
    );
    exec.terminal = Some(Size { rows: 33, columns: 101 });
    exec.stdin = true;
    let mut call = sandbox.call(&exec);
    let seen = call.until("ready\r\n");
    assert!(seen.starts_with("/dev/pts/") && seen.contains("\r\n33 101\r\nxterm\r\n"), "{seen:?}");
    call.send(Kind::Resize, &[0, 40, 0, 80]);
    let ended = call.end();
    assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("40 80\r\n", ""));
    assert_eq!(ended.result.exit_code, Some(4));
    // What is typed arrives, and so do its end and its signals.
    exec.command[2] = "stty -echo; echo ready; cat; echo end".into();
    let mut call = sandbox.call(&exec);
    call.until("ready\r\n");
    call.send(Kind::Stdin, b"typed\n");
    call.send(Kind::Stdin, &[]);
    assert_eq!(call.end().stdout, "typed\r\nend\r\n");
    exec.command[2] = "echo ready; exec sleep 1000".into();
    let mut call = sandbox.call(&exec);
    call.until("ready\r\n");
    call.send(Kind::Stdin, b"\x03");
    assert_eq!(call.end().result.signal, Some(2));
}

#[test]
fn what_a_call_leaves_in_the_background_ends_with_it() {
    let mut sandbox = Sandbox::idle(Recipe::new());
    let process_1 = sandbox.container.process_1();
    // One that holds the output, and one that does not; both daemonized and deaf.
    let script = "setsid sh -c 'trap \"\" TERM HUP; sleep 1000' &
        sh -c 'setsid sleep 1000 >/dev/null 2>&1 &'
        echo out";
    let ended = sandbox.run(&shell(script));
    assert_eq!((ended.stdout.as_str(), ended.result.exit_code), ("out\n", Some(0)));
    eventually("all are gone", || below(process_1).is_empty().then_some(()));
}

#[test]
fn two_hundred_calls_leave_nothing_behind() {
    let mut sandbox = Sandbox::idle(Recipe::new());
    let process_1 = sandbox.container.process_1();
    assert_eq!(sandbox.run(&command(&["true"])).result.exit_code, Some(0));
    let quiet = || {
        eventually("all are gone", || below(process_1).is_empty().then_some(()));
        (descriptors(process_1), resident_kb(process_1))
    };
    let before = quiet();
    println!("process 1: {} kB resident", before.1);
    // Of a build without optimization, which is larger than the released one.
    assert!(before.1 < 5 * 1024, "{} kB", before.1);
    let start = Instant::now();
    for number in 0..200 {
        let ended = sandbox.run(&shell(&format!("echo {number}")));
        assert_eq!(ended.stdout, format!("{number}\n"));
    }
    println!("a call takes {:?}, its shell included", start.elapsed() / 200);
    let after = quiet();
    println!("process 1 after 200 calls: {} kB resident", after.1);
    assert_eq!(after.0, before.0, "descriptors");
    assert!(after.1 < before.1 + 1024, "{} kB, {} kB before", after.1, before.1);
    sandbox.container.signal(Signal::SIGTERM);
    assert_eq!(sandbox.container.end().code, 0);
}
