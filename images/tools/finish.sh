#!/bin/sh
# The last step of the tools image, run inside it as root: makes the fixtures from their sources with the very tools
# the image offers, then removes what no sandbox needs. Must leave nothing that names the machine it was built on.
set -eu

sources=/opt/sources
fixtures=/opt/fixtures
export HOME=/tmp/home PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export GIT_AUTHOR_NAME=Glovebox GIT_AUTHOR_EMAIL=sandbox@glovebox.dev GIT_AUTHOR_DATE='2026-01-01T00:00:00Z'
export GIT_COMMITTER_NAME=Glovebox GIT_COMMITTER_EMAIL=sandbox@glovebox.dev GIT_COMMITTER_DATE='2026-01-01T00:00:00Z'
mkdir -p "$HOME" "$fixtures/pypi" "$fixtures/npm" "$fixtures/git"

# One Python package as a wheel, one only as a source distribution.
pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir "$fixtures/pypi" "$sources/python-greeting"
(cd "$sources/python-parting" && python3 -c 'import setuptools.build_meta as b; b.build_sdist("'"$fixtures/pypi"'")' >/dev/null)

# One npm package.
(cd "$sources/npm-greeting" && npm pack --silent --pack-destination "$fixtures/npm" >/dev/null)

# One repository, ready for plain HTTP.
git init --quiet --initial-branch=main /tmp/greeting
cp "$sources/npm-greeting/greet.js" /tmp/greeting/
git -C /tmp/greeting add greet.js
git -C /tmp/greeting commit --quiet --message 'Greet whoever is there'
git clone --quiet --bare /tmp/greeting "$fixtures/git/greeting.git"
git -C "$fixtures/git/greeting.git" remote remove origin
git -C "$fixtures/git/greeting.git" update-server-info

chmod -R u=rwX,go=rX /opt/fixtures
rm -rf "$sources" "$HOME" /tmp/greeting

# What the build left: the mirror it used, package lists and caches, logs, build-time settings.
rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/apt/apt.conf.d/99mmdebstrap /etc/dpkg/dpkg.cfg.d/99mmdebstrap
rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* /var/backups/* /tmp/* /root/.npm /root/.cache
rm -f /etc/hostname /etc/resolv.conf /etc/machine-id /var/lib/dbus/machine-id

# What Debian's npm depends on for building and linting itself, and never loads when it installs or runs a package: two
# thirds of the image's files. Only now, since the packages' own set-up wants to find them.
(cd /usr/share/nodejs && rm -rf @babel @types @webassemblyjs caniuse-lite core-js core-js-pure es-abstract eslint lodash-es \
    regenerate-unicode-properties terser webpack)
find /usr/bin -xtype l -delete

# Set-uid programs are of no use without privileges to gain.
find / -xdev -type f -perm /6000 -exec chmod ug-s {} +
# Where a sandbox mounts what it may write.
mkdir -p /workspace /home/sandbox
