//! The parameters of a request, read strictly: each once, and none that its endpoint has not. Pure.

use super::problem::{Problem, Reason};

/// The parameters in their order, each by its name as it is known.
pub(super) fn pairs<'q>(
    query: &'q str,
    known: &[&'static str],
) -> Result<Vec<(&'static str, &'q str)>, Problem> {
    let mut all: Vec<(&'static str, &'q str)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = known.iter().copied().find(|known| *known == name) else {
            let message = format!("the parameters are {}, and no others", known.join(", "));
            return Err(Problem::new(Reason::InvalidRequest, message));
        };
        if all.iter().any(|(seen, _)| *seen == name) {
            return Err(Problem::field(name, "expected it once"));
        }
        all.push((name, value));
    }
    Ok(all)
}

/// A parameter that is true or false.
pub(super) fn truth(name: &'static str, value: &str) -> Result<bool, Problem> {
    value.parse().map_err(|_| Problem::field(name, "expected true or false"))
}
