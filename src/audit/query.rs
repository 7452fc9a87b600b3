//! Which entries somebody wants to see. Pure.

use super::{act::Act, entry::Entry};

/// What is asked for; all of it must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of sandboxes in this namespace.
    pub namespace: Option<String>,
    /// Of sandboxes with this name.
    pub sandbox: Option<String>,
    /// Of the sandbox with this uid.
    pub uid: Option<String>,
    /// One of these acts; none: all.
    pub acts: Vec<Act>,
    /// By this user.
    pub actor: Option<String>,
    /// With this reason.
    pub reason: Option<String>,
    /// With this host, asked for or dialled.
    pub host: Option<String>,
    /// Not before, in milliseconds since 1970, by the trail's clock.
    pub since: Option<i64>,
    /// Not after.
    pub until: Option<i64>,
}

impl Filter {
    /// Whether an entry fits.
    #[must_use]
    pub fn takes(&self, entry: &Entry) -> bool {
        let record = &entry.record;
        let sandbox = record.sandbox.as_ref();
        let same = |wanted: &Option<String>, is: Option<&String>| wanted.is_none() || wanted.as_ref() == is;
        same(&self.namespace, sandbox.map(|sandbox| &sandbox.namespace))
            && same(&self.sandbox, sandbox.map(|sandbox| &sandbox.name))
            && same(&self.uid, sandbox.map(|sandbox| &sandbox.uid))
            && (self.acts.is_empty() || self.acts.contains(&record.activity_name))
            && same(&self.actor, record.actor.as_ref())
            && same(&self.reason, record.status_detail.as_ref())
            && same(&self.host, record.dst_endpoint.as_ref().and_then(|end| end.hostname.as_ref()))
            && self.since.is_none_or(|since| entry.at >= since)
            && self.until.is_none_or(|until| entry.at <= until)
    }

    /// As parameters of a URL, and back by [`Filter::read`].
    #[must_use]
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let texts = [
            ("namespace", &self.namespace),
            ("sandbox", &self.sandbox),
            ("uid", &self.uid),
            ("actor", &self.actor),
            ("reason", &self.reason),
            ("host", &self.host),
        ];
        let texts = texts.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        let acts = self.acts.iter().map(|act| ("act", act.as_str().to_owned()));
        let times = [("since", self.since), ("until", self.until)];
        let times = times.into_iter().filter_map(|(name, time)| Some((name, time?.to_string())));
        texts.chain(acts).chain(times).collect()
    }

    /// Takes one parameter. Whether it is one of a filter.
    ///
    /// # Errors
    /// What its value should be.
    pub fn read(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let text = match name {
            "namespace" => &mut self.namespace,
            "sandbox" => &mut self.sandbox,
            "uid" => &mut self.uid,
            "actor" => &mut self.actor,
            "reason" => &mut self.reason,
            "host" => &mut self.host,
            "act" => {
                self.acts.push(act(value)?);
                return Ok(true);
            }
            "since" | "until" => {
                let time = value.parse().map_err(|_| format!("{name}: expected milliseconds since 1970"))?;
                *(if name == "since" { &mut self.since } else { &mut self.until }) = Some(time);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        *text = Some(value.to_owned());
        Ok(true)
    }
}

/// An act by its name.
///
/// # Errors
/// Which there are.
pub fn act(name: &str) -> Result<Act, String> {
    let found = Act::ALL.iter().find(|act| act.as_str().eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| {
        let all: Vec<_> = Act::ALL.iter().map(|act| act.as_str()).collect();
        format!("there is no act of this name; there are {}", all.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::{Endpoint, Record, Role, Subject, entry::Source};

    fn entry() -> Entry {
        let sandbox =
            Subject { uid: "u".into(), namespace: "n".into(), name: "s".into(), ..Subject::default() };
        let end = Endpoint { hostname: Some("h".into()), ..Endpoint::default() };
        let record = Record {
            actor: Some("ada".into()),
            dst_endpoint: Some(end),
            ..Record::new(Act::EgressRefused, 5).failed("NoRule").about(sandbox)
        };
        let by = Source { role: Role::Gateway, pod: "p".into(), boot: "b".into(), seq: 0 };
        Entry { n: 0, prev: [0; 32], at: 10, by, record }
    }

    #[test]
    fn all_that_is_asked_for_must_fit() {
        let pairs = [
            ("namespace", "n", "m"),
            ("sandbox", "s", "t"),
            ("uid", "u", "v"),
            ("act", "egressrefused", "CallEnded"),
            ("actor", "ada", "bob"),
            ("reason", "NoRule", "Denied"),
            ("host", "h", "i"),
            ("since", "10", "11"),
            ("until", "10", "9"),
        ];
        let mut whole = Filter::default();
        assert!(whole.takes(&entry()));
        for (name, good, bad) in pairs {
            assert_eq!(whole.read(name, good), Ok(true), "{name}");
            assert!(whole.takes(&entry()), "{name}");
            let mut other = Filter::default();
            assert_eq!(other.read(name, bad), Ok(true));
            assert!(!other.takes(&entry()), "{name}");
        }
        let mut again = Filter::default();
        for (name, value) in whole.pairs() {
            again.read(name, &value).unwrap();
        }
        assert_eq!(again, whole);
        assert_eq!(again.read("colour", "x"), Ok(false));
        assert!(
            again.read("act", "Nothing").unwrap_err().contains("CallEnded")
                && again.read("since", "x").is_err()
        );
        assert!(!Filter { acts: vec![Act::CallEnded], ..Filter::default() }.takes(&entry()));
    }
}
