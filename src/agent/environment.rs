//! Owns the workload's environment: what of the container's own environment reaches it. Pure.
//!
//! A container is told of the cluster's services though the pod asks not to be (`enableServiceLinks: false` still
//! leaves those of the API server). None of that is the workload's business, nor are the agent's own variables.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// PATH where the container has none, as the shells have it compiled in.
pub const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Prefixes that belong to the platform: a user's variable of such a name does not arrive.
pub const RESERVED_PREFIXES: [&str; 2] = ["KUBERNETES_", "GLOVEBOX_"];

/// One `NAME=value` pair each.
pub type Variables = Vec<(OsString, OsString)>;

/// The workload's environment, made from the agent's own.
///
/// Removed are names with one of [`RESERVED_PREFIXES`] and all variables of a service link. A link is recognised as a
/// group whose members agree (`X_SERVICE_HOST`, `X_SERVICE_PORT` and an `X_PORT` that is a URL of both), so that a
/// lone `DB_PORT=5432` or `API_SERVICE_HOST=localhost` of the user stays. `path_append` goes to the end of PATH.
#[must_use]
pub fn workload(own: Variables, path_append: &[PathBuf]) -> Variables {
    let links = service_links(&own);
    let mut kept: Variables = own.into_iter().filter(|(name, _)| keeps(name, &links)).collect();
    if let Some((_, path)) = kept.iter_mut().find(|(name, _)| name == "PATH") {
        *path = appended(path, path_append);
    } else {
        kept.push(("PATH".into(), appended(OsStr::new(DEFAULT_PATH), path_append)));
    }
    kept
}

fn appended(path: &OsStr, more: &[PathBuf]) -> OsString {
    let mut out = path.as_bytes().to_vec();
    for dir in more {
        if !out.is_empty() {
            out.push(b':');
        }
        out.extend_from_slice(dir.as_os_str().as_bytes());
    }
    OsString::from_vec(out)
}

fn keeps(name: &OsStr, links: &BTreeSet<String>) -> bool {
    // A name that is no text is none of the platform's.
    let Some(name) = name.to_str() else { return true };
    !RESERVED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        && !links.iter().any(|link| name.strip_prefix(link.as_str()).is_some_and(is_link_suffix))
}

/// The upper-case names of the services that the environment describes in full.
fn service_links(own: &Variables) -> BTreeSet<String> {
    let value = |name: &str| own.iter().find(|(key, _)| key == name).and_then(|(_, value)| value.to_str());
    let is_link = |link: &str, host: &str| {
        let port = value(&format!("{link}_SERVICE_PORT"))?;
        let (_, address) = value(&format!("{link}_PORT"))?.split_once("://")?;
        let (url_host, url_port) = address.rsplit_once(':')?;
        let url_host = url_host.trim_start_matches('[').trim_end_matches(']');
        (url_host == host && url_port == port).then_some(())
    };
    own.iter()
        .filter_map(|(name, host)| {
            let link = name.to_str()?.strip_suffix("_SERVICE_HOST")?;
            is_link(link, host.to_str()?).map(|()| link.to_owned())
        })
        .collect()
}

/// Whether this, after a service's name, is one of the variables that a service link consists of.
fn is_link_suffix(suffix: &str) -> bool {
    match suffix {
        "_SERVICE_HOST" | "_SERVICE_PORT" | "_PORT" => return true,
        _ if suffix.starts_with("_SERVICE_PORT_") => return true,
        _ => {}
    }
    let Some(rest) = suffix.strip_prefix("_PORT_") else { return false };
    let (number, rest) = rest.split_once('_').unwrap_or((rest, ""));
    let (protocol, part) = rest.split_once('_').unwrap_or((rest, ""));
    number.parse::<u16>().is_ok()
        && matches!(protocol, "TCP" | "UDP" | "SCTP")
        && matches!(part, "" | "PROTO" | "PORT" | "ADDR")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Variables {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn what_the_platform_put_there_is_gone_and_the_rest_stays() {
        let own = variables(&[
            ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
            ("KUBERNETES_PORT_443_TCP", "tcp://10.96.0.1:443"),
            ("GLOVEBOX_TOKEN", "x"),
            ("MY_DB_SERVICE_HOST", "10.96.7.7"),
            ("MY_DB_SERVICE_PORT", "5432"),
            ("MY_DB_SERVICE_PORT_SQL", "5432"),
            ("MY_DB_PORT", "tcp://10.96.7.7:5432"),
            ("MY_DB_PORT_5432_TCP", "tcp://10.96.7.7:5432"),
            ("MY_DB_PORT_5432_TCP_ADDR", "10.96.7.7"),
            ("MY_DB_PORT_5432_TCP_FLAGS", "mine"),
            ("MY_DB_PASSWORD_FILE", "/x"),
            ("SIX_SERVICE_HOST", "fd00::1"),
            ("SIX_SERVICE_PORT", "53"),
            ("SIX_PORT", "udp://[fd00::1]:53"),
            ("HOME", "/home/sandbox"),
            ("PATH", "/bin"),
        ]);
        assert_eq!(
            workload(own, &["/workspace/.local/bin".into(), "/x".into()]),
            variables(&[
                ("MY_DB_PORT_5432_TCP_FLAGS", "mine"),
                ("MY_DB_PASSWORD_FILE", "/x"),
                ("HOME", "/home/sandbox"),
                ("PATH", "/bin:/workspace/.local/bin:/x"),
            ])
        );
    }

    #[test]
    fn names_a_user_may_well_choose_stay() {
        let own = variables(&[
            ("PATH", "/bin"),
            ("DB_PORT", "5432"),
            ("API_SERVICE_HOST", "localhost"),
            ("API_SERVICE_PORT", "8080"),
            ("API_PORT", "http://elsewhere:8080"),
            ("WEB_SERVICE_HOST", "localhost"),
            ("KUBERNETES", "yes"),
        ]);
        assert_eq!(workload(own.clone(), &[]), own);
    }

    #[test]
    fn a_missing_or_empty_path_is_no_relative_path() {
        assert_eq!(
            workload(Vec::new(), &["/x".into()]),
            variables(&[("PATH", &format!("{DEFAULT_PATH}:/x"))])
        );
        assert_eq!(workload(variables(&[("PATH", "")]), &["/x".into()]), variables(&[("PATH", "/x")]));
    }

    #[test]
    fn bytes_that_are_no_text_pass_through() {
        let odd = vec![
            (OsString::from_vec(vec![0xff]), OsString::from_vec(vec![0xfe])),
            ("PATH".into(), "/".into()),
        ];
        assert_eq!(workload(odd.clone(), &[]), odd);
    }
}
