//! `glovebox-agent`: the small static program inside each sandbox; no logic.

fn main() -> std::process::ExitCode {
    glovebox::agent::main(std::env::args_os().skip(1))
}
