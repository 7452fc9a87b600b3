//! The command line as a person writes it.

use clap::{CommandFactory as _, Parser as _, ValueEnum as _};

use super::*;

fn read(words: &[&str]) -> Result<Plugin, clap::Error> {
    Plugin::try_parse_from(std::iter::once("glovebox").chain(words.iter().copied()))
}

#[test]
fn the_definition_is_sound() {
    Plugin::command().debug_assert();
}

#[test]
fn what_people_write_is_read() {
    for words in [
        &["run", "python", "--", "python", "-c", "print(1)"][..],
        &[
            "run",
            "-q",
            "--keep",
            "--allow",
            "pypi.org",
            "--allow=a.example:8443",
            "--ttl",
            "1h",
            "python",
            "--",
            "true",
        ],
        &["run", "-i", "--timeout", "30s", "-e", "A=1", "python", "--", "cat", "-"],
        &["exec", "s", "--", "ls", "-la", "--", "x"],
        &["exec", "-n", "team-a", "--session", "https://session.example", "s", "--", "true"],
        &["create", "python"],
        &["create", "--dry-run", "-o", "yaml", "python", "--", "sleep", "1"],
        &["list", "-A", "-o", "wide"],
        &["ls"],
        &["describe", "s", "-o", "json"],
        &["extend", "s", "2h"],
        &["delete", "a", "b"],
        &["doctor", "-o", "json"],
        &["completion", "zsh"],
    ] {
        read(words).unwrap_or_else(|error| panic!("{words:?}: {error}"));
    }
}

#[test]
fn what_is_wrong_is_a_usage_error() {
    for words in [
        &["run", "python"][..],
        &["run", "--", "true"],
        &["run", "python", "true"],
        &["exec", "s"],
        &["run", "--allow", "https://x", "python", "--", "true"],
        &["run", "--timeout", "5", "python", "--", "true"],
        &["run", "--cpu", "lots", "python", "--", "true"],
        &["create", "--wait", "--dry-run", "python"],
        &["list", "-A", "-n", "a"],
        &["list", "-o", "xml"],
        &["extend", "s"],
        &["delete"],
        &["completion", "dos"],
        &["nothing"],
    ] {
        let error = read(words).err().unwrap_or_else(|| panic!("{words:?} was taken"));
        assert_eq!(error.exit_code(), 2, "{words:?}");
    }
}

#[test]
fn help_alone_is_enough() {
    let mut all = Plugin::command();
    all.build();
    let mut seen = 0;
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        seen += 1;
        let help = command.clone().render_long_help().to_string();
        let name = command.get_name();
        assert!(
            help.contains(&format!("\n  glovebox {name}")) || help.contains(&format!("glovebox {name} ")),
            "{name} has no example:\n{help}"
        );
        if ["run", "exec"].contains(&name) {
            for code in ["124", "125", "128+N", "  2 "] {
                assert!(help.contains(code), "{name} does not say {code}");
            }
        }
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            assert!(argument.get_help().is_some(), "{name} {} is not explained", argument.get_id());
        }
    }
    assert_eq!(seen, 14);
}

#[test]
fn a_plugin_is_known_by_its_name() {
    let named = |name: &str| is_plugin(Some(OsStr::new(name)));
    assert!(
        named("/usr/local/bin/kubectl-glovebox")
            && named("kubectl-glovebox")
            && named("kubectl-glovebox.exe")
    );
    assert!(!named("glovebox") && !named("/kubectl-glovebox/glovebox") && !is_plugin(None));
}

#[test]
fn every_shell_has_its_completion() {
    for shell in clap_complete::Shell::value_variants() {
        let mut script = Vec::new();
        clap_complete::generate(*shell, &mut Plugin::command(), "glovebox", &mut script);
        let script = String::from_utf8(script).unwrap();
        for word in ["describe", "doctor", "extend"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
