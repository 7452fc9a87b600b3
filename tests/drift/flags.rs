//! The chart starts the roles with flags that they have, and gives the authority's key to one of them alone.

use clap::{Args, Command};

use super::file;

const TEMPLATES: &str = "charts/glovebox/templates";

/// The flags that a template gives.
fn flags(text: &str) -> Vec<&str> {
    let given = text.lines().filter_map(|line| line.trim().strip_prefix("- --"));
    given.map(|flag| flag.split('=').next().unwrap_or(flag)).collect()
}

fn known<O: Args>() -> Vec<String> {
    let command = O::augment_args(Command::new("role"));
    command.get_arguments().filter_map(|argument| argument.get_long().map(str::to_owned)).collect()
}

#[test]
fn the_chart_gives_flags_that_there_are() {
    for (template, known, least) in [
        ("deployment.yaml", known::<glovebox::controller::Options>(), 7),
        ("gateway/deployment.yaml", known::<glovebox::gateway::Options>(), 8),
        ("session/deployment.yaml", known::<glovebox::session::Options>(), 8),
    ] {
        let text = file(&format!("{TEMPLATES}/{template}"));
        let given = flags(&text);
        assert!(given.len() >= least, "{template}: {given:?}");
        for flag in given {
            assert!(known.iter().any(|known| known == flag), "{template}: --{flag} is no flag");
        }
    }
}

#[test]
fn the_key_of_the_authority_is_the_gateways_alone() {
    let mounts_it = |template: &str| file(&format!("{TEMPLATES}/{template}")).contains("tls.key");
    assert!(mounts_it("gateway/deployment.yaml") && mounts_it("gateway/ca.yaml"));
    for other in [
        "deployment.yaml",
        "_helpers.tpl",
        "hook-cleanup.yaml",
        "hook-crds.yaml",
        "classes.yaml",
        "clusterrole.yaml",
    ] {
        assert!(!mounts_it(other), "{other}");
    }
    let controller = file(&format!("{TEMPLATES}/deployment.yaml"));
    assert!(controller.contains("--egress-ca=") && !controller.contains("--ca-key"));
}

/// What calls are signed with is in the session's pods; the controller has the certificate, which is in every sandbox.
#[test]
fn the_key_of_calls_is_the_sessions_alone() {
    let [session, gateway, controller] =
        ["session/", "gateway/", ""].map(|role| file(&format!("{TEMPLATES}/{role}deployment.yaml")));
    assert!(session.contains("--signing-key=") && session.contains("glovebox.callsName"));
    assert!(!gateway.contains("glovebox.callsName"));
    assert!(controller.contains("--call-keys=") && controller.contains("glovebox.callsName"));
    assert!(controller.contains("- {key: tls.crt, path: tls.crt}") && !controller.contains("tls.key"));
}
