//! What no rule and no class can open: addresses with every way to spell IPv4 in IPv6, names, ports.

use std::net::IpAddr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use super::{
    host::{Host, suffixes},
    verdict::DenyReason,
};

/// The cluster's own addresses: pods, services, nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRanges(Vec<IpNet>);

impl ClusterRanges {
    /// Sorted and without repetition, so that equal sets compare equal.
    #[must_use]
    pub fn new(ranges: impl IntoIterator<Item = IpNet>) -> Self {
        Self(IpNet::aggregate(&ranges.into_iter().map(|range| range.trunc()).collect()))
    }

    /// The ranges.
    #[must_use]
    pub fn ranges(&self) -> &[IpNet] {
        &self.0
    }

    /// The range that holds the address.
    #[must_use]
    pub fn holding(&self, address: IpAddr) -> Option<&IpNet> {
        self.0.iter().find(|range| range.contains(&address))
    }
}

/// A range, the reason that its denial is counted by, and words.
pub(super) type DeniedRange = (IpNet, DenyReason, &'static str);

const fn v4(octets: [u8; 4], prefix: u8) -> IpNet {
    let [a, b, c, d] = octets;
    IpNet::V4(Ipv4Net::new_assert(std::net::Ipv4Addr::new(a, b, c, d), prefix))
}

const fn v6(s: [u16; 8], prefix: u8) -> IpNet {
    let address = std::net::Ipv6Addr::new(s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]);
    IpNet::V6(Ipv6Net::new_assert(address, prefix))
}

/// RFC 6890, RFC 4291, RFC 6052, RFC 8215, and the metadata addresses of the clouds; the narrower range first.
pub(super) const RANGES: &[DeniedRange] = {
    use DenyReason::{EmbeddedAddress as Embedded, LocalAddress as Local, MetadataAddress as Metadata};
    &[
        (v4([169, 254, 0, 0], 16), Metadata, "link-local, where metadata services are"),
        (v4([100, 100, 100, 200], 32), Metadata, "a cloud's metadata service"),
        (v4([168, 63, 129, 16], 32), Metadata, "a cloud's metadata service"),
        (v4([192, 0, 0, 192], 32), Metadata, "a cloud's metadata service"),
        (v4([0, 0, 0, 0], 8), Local, "unspecified addresses reach this host"),
        (v4([127, 0, 0, 0], 8), Local, "loopback"),
        (v4([192, 0, 0, 0], 24), Local, "reserved for protocols"),
        (v4([192, 88, 99, 0], 24), Embedded, "6to4 relays"),
        (v4([224, 0, 0, 0], 4), Local, "multicast"),
        (v4([240, 0, 0, 0], 4), Local, "reserved and broadcast"),
        (v6([0xfd00, 0xec2, 0, 0, 0, 0, 0, 0], 32), Metadata, "a cloud's metadata service"),
        (v6([0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254], 128), Metadata, "a cloud's metadata service"),
        (v6([0, 0, 0, 0, 0, 0, 0, 0], 126), Local, "unspecified and loopback"),
        (v6([0, 0, 0, 0, 0, 0, 0, 0], 96), Embedded, "unspecified, loopback and IPv4-compatible addresses"),
        (v6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Embedded, "IPv4-mapped addresses"),
        (v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96), Embedded, "IPv4-translated addresses"),
        (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96), Embedded, "NAT64"),
        (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48), Embedded, "local NAT64"),
        (v6([0x100, 0, 0, 0, 0, 0, 0, 0], 64), Local, "discard prefix"),
        (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32), Embedded, "Teredo"),
        (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), Embedded, "6to4"),
        (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10), Local, "link-local"),
        (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10), Local, "site-local, long withdrawn"),
        (v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8), Local, "multicast"),
    ]
};

/// Ranges that the internet does not route: an allowed name that leads there is somebody's intranet.
pub(super) const PRIVATE: &[IpNet] = &[
    v4([10, 0, 0, 0], 8),
    v4([100, 64, 0, 0], 10),
    v4([172, 16, 0, 0], 12),
    v4([192, 168, 0, 0], 16),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
];

/// All of IPv6 that is given out for use: global unicast. What is neither this nor private is reserved.
const GLOBAL_V6: Ipv6Net = Ipv6Net::new_assert(std::net::Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Whether an address is denied whatever a rule or a class says.
#[must_use]
pub fn always_denied(address: IpAddr) -> Option<DenyReason> {
    if let Some((_, reason, _)) = RANGES.iter().find(|(range, ..)| range.contains(&address)) {
        return Some(*reason);
    }
    let IpAddr::V6(v6) = address else { return None };
    // ISATAP (RFC 5214) under any prefix: the interface identifier 0:5efe or 200:5efe, then an IPv4 address.
    let [.., high, low, _, _] = v6.segments();
    if low == 0x5efe && matches!(high, 0 | 0x200) {
        return Some(DenyReason::EmbeddedAddress);
    }
    let usable = GLOBAL_V6.contains(&v6) || PRIVATE.iter().any(|range| range.contains(&address));
    (!usable).then_some(DenyReason::LocalAddress)
}

/// Whether an address that an allowed name leads to is denied, unless the class opens it by name.
#[must_use]
pub fn hard_denied(address: IpAddr, cluster: &ClusterRanges) -> Option<DenyReason> {
    always_denied(address).or_else(|| cluster.holding(address).map(|_| DenyReason::ClusterAddress)).or_else(
        || PRIVATE.iter().any(|range| range.contains(&address)).then_some(DenyReason::PrivateAddress),
    )
}

/// Whether a port is denied whatever a rule says, and why.
#[must_use]
pub const fn denied_port(port: u16) -> Option<&'static str> {
    match port {
        0 => Some("it is none"),
        25 => Some("a sandbox sends no mail"),
        53 | 853 => Some("names are asked of the gateway alone"),
        _ => None,
    }
}

/// Names that are denied with all that is below them, in order.
pub(super) const NAMES: &[(&str, DenyReason)] = {
    use DenyReason::{
        ClusterName as Cluster, DnsOverHttps as Doh, EchPublicName as Ech, LocalName as Local,
        MetadataName as Metadata,
    };
    &[
        ("adguard-dns.com", Doh),
        ("arpa", Local),
        ("blahdns.com", Doh),
        ("cloudflare-dns.com", Doh),
        ("cloudflare-ech.com", Ech),
        ("cluster.local", Cluster),
        ("controld.com", Doh),
        ("cover.defo.ie", Ech),
        ("dns.adguard.com", Doh),
        ("dns.alidns.com", Doh),
        ("dns.apple.com", Doh),
        ("dns.digitale-gesellschaft.ch", Doh),
        ("dns.google", Doh),
        ("dns.google.com", Doh),
        ("dns.mullvad.net", Doh),
        ("dns.nextdns.io", Doh),
        ("dns.opendns.com", Doh),
        ("dns.sb", Doh),
        ("dns.switch.ch", Doh),
        ("dns.twnic.tw", Doh),
        ("dns.umbrella.com", Doh),
        ("dns0.eu", Doh),
        ("dnsforge.de", Doh),
        ("doh.360.cn", Doh),
        ("doh.applied-privacy.net", Doh),
        ("doh.cleanbrowsing.org", Doh),
        ("doh.dns.apple.com", Doh),
        ("doh.la.ahadns.net", Doh),
        ("doh.libredns.gr", Doh),
        ("doh.opendns.com", Doh),
        ("doh.pub", Doh),
        ("doh.tiarap.org", Doh),
        ("doh.umbrella.com", Doh),
        ("doh.xfinity.com", Doh),
        ("dot.pub", Doh),
        ("encryptedsni.com", Ech),
        ("instance-data", Metadata),
        ("instance-data.ec2.internal", Metadata),
        ("invalid", Local),
        ("local", Local),
        ("localdomain", Local),
        ("localhost", Local),
        ("mask-api.icloud.com", Doh),
        ("mask-h2.icloud.com", Doh),
        ("mask.icloud.com", Doh),
        ("metadata.azure.internal", Metadata),
        ("metadata.goog", Metadata),
        ("metadata.google.internal", Metadata),
        ("metadata.platformequinix.com", Metadata),
        ("metadata.tencentyun.com", Metadata),
        ("nextdns.io", Doh),
        ("odoh.crypto.sx", Doh),
        ("one.one.one.one", Doh),
        ("onion", Local),
        ("ordns.he.net", Doh),
        ("quad9.net", Doh),
        ("svc", Cluster),
        ("tls-ech.dev", Ech),
    ]
};

/// Whether a name is denied whatever a rule says. The longest entry counts: `cluster.local` before `local`.
#[must_use]
pub fn denied_name(host: &Host) -> Option<DenyReason> {
    suffixes(host.as_str())
        .find_map(|suffix| NAMES.binary_search_by_key(&suffix, |(name, _)| name).ok().map(|at| NAMES[at].1))
}

/// An address that was checked and may be dialled. There is no other way to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Checked(IpAddr);

impl Checked {
    pub(super) const fn new(address: IpAddr) -> Self {
        Self(address)
    }

    /// The address.
    #[must_use]
    pub const fn address(self) -> IpAddr {
        self.0
    }
}

/// Checks one answer of a resolver, where no class opens a private range; see [`super::Policy::check_answer`].
///
/// # Errors
/// Why the address may not be dialled.
pub fn check_answer(address: IpAddr, cluster: &ClusterRanges) -> Result<Checked, DenyReason> {
    hard_denied(address, cluster).map_or(Ok(Checked(address)), Err)
}
