//! Whatever a client calls a host: one canonical name, an address spelled in full, or a refusal.
#![no_main]

use std::net::IpAddr;

use glovebox::policy::{Destination, Host, denied_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    match Host::parse(input) {
        Ok(host) => {
            let name = host.as_str();
            assert!(!name.is_empty() && name.len() <= 253 && input.len() <= 254);
            assert!(
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
            );
            assert!(name.split('.').all(|label| !label.is_empty() && label.len() <= 63));
            assert!(name.parse::<IpAddr>().is_err());
            let last = name.rsplit('.').next().expect("a label");
            assert!(!last.bytes().all(|byte| byte.is_ascii_digit()));
            assert_eq!(Host::parse(name.as_bytes()), Ok(host.clone()));
            // Case and one dot at the end change nothing.
            assert_eq!(Host::parse(format!("{}.", name.to_ascii_uppercase()).as_bytes()), Ok(host.clone()));
            assert_eq!(Destination::parse(input), Ok(Destination::Name(host.clone())));
            // What is below a denied name is denied.
            let below = Host::parse(format!("a.{name}").as_bytes());
            if denied_name(&host).is_some() {
                assert!(below.is_ok_and(|below| denied_name(&below).is_some()) || name.len() > 251);
            }
        }
        Err(error) => assert!(error.to_string().len() < 200),
    }
    if let Ok(there) = Destination::parse(input) {
        assert_eq!(Destination::parse(there.to_string().as_bytes()), Ok(there));
    }
});
