#!/bin/sh
# test_rust.sh - the crates of bindings/rust: the contract on threads and processes, what must not compile, the library compiled
# by cargo and found by pkg-config, examples, docs/rust.md.
#   usage: [CC=cc] sh tests/bindings/test_rust.sh
#
# Nothing is fetched.  Ends with "N passed, N failed".
cd "$(dirname "$0")/../.." || exit 1
. tests/support/folder.sh
: "${CC:=cc}"
export CC
if ! command -v cargo > /dev/null 2>&1; then
    echo "skipped: there is no cargo (Debian: cargo, rustc)"
    echo "0 passed, 0 failed"
    exit 0
fi
. tests/support/checks.sh

cd_cargo() { (cd "$dir/rust" && cargo "$@"); }

make --no-print-directory config=plain "$(folder plain)/coll-run" || exit 1
run=$PWD/$(folder plain)/coll-run
# The crates as they are packed: with a single file of their own.
cp -r bindings/rust "$dir/rust" && cp single/coll.h "$dir/rust/coll-sys/coll.h" || exit 1
rm -rf "$dir/rust/target"
export CARGO_TARGET_DIR="$dir/target" CFLAGS="-O0 -DCOLL__ONE_TIER" RUSTFLAGS="-D warnings"

check "it is compiled, without a warning" cd_cargo build --offline --all-targets
check "what must not compile does not; the rest of the documentation runs" cd_cargo test --offline --doc
cp "$dir/log" "$dir/programs"
check "five programs in the documentation" grep -q '^test result: ok. 5 passed' "$dir/programs"
test=$(find "$dir/target/debug/deps" -name 'contract-*' -type f ! -name '*.*' | head -n 1)
counted "the contract: 1 to 5 threads" 1 timeout 300 "$test"
for ranks in 1 2 3 5; do
    counted "the contract: $ranks processes" $ranks timeout 300 "$run" -n $ranks --no-prefix "$test"
    counted "the contract: $ranks processes, TCP" $ranks timeout 300 env COLL_SHARE=off "$run" -n $ranks --no-prefix "$test"
done

# ---- examples and the page
sums='rank 0 of 4: 6.0 4.0;rank 1 of 4: 6.0 4.0;rank 2 of 4: 6.0 4.0;rank 3 of 4: 6.0 4.0;'
says() { # text command...
    text=$1; shift
    [ "$("$@" | sort | tr '\n' ';')" = "$text" ]
}
check "examples/sum: threads" says "$sums" "$dir/target/debug/examples/sum"
check "examples/sum: processes" says "$sums" "$run" -n 4 --no-prefix "$dir/target/debug/examples/sum"
check "examples/fit: threads" says '4 ranks: 1.000 -2.000 x +0.500 x^2;' "$dir/target/debug/examples/fit"
check "examples/fit: processes" says '3 ranks: 1.000 -2.000 x +0.500 x^2;' \
    "$run" -n 3 --no-prefix "$dir/target/debug/examples/fit"
{
    echo 'use coll::{Options, Status, Wire};'
    awk '/^```rust/ { inside = 1; piece = ""; next }
        /^```/ { if (inside && piece ~ /fn main/) whole = piece; else if (inside) part = part piece; inside = 0 }
        inside { piece = piece $0 "\n" }
        END { sub(/fn main\(\)/, "fn shown()", whole)
            print whole "fn parts(comm: &Comm) -> coll::Result<()> {\n" part "Ok(())\n}"
            print "fn main() -> coll::Result<()> {\nshown()?;\ncoll::spawn(3, |comm| parts(&comm))?.into_iter().collect()\n}" }' \
        docs/rust.md
} > "$dir/rust/coll/examples/page.rs"
check "docs/rust.md: compiles" cd_cargo build --offline --example page
check "docs/rust.md: runs" says "$(echo "$sums" | sed 's/\.0//g')" "$dir/target/debug/examples/page"
for name in $(sed -n 's/^    pub fn \([a-z_]*\)<T: Element>.*/\1/p' bindings/rust/coll/src/*.rs); do
    check "docs/rust.md: $name" grep -q "\`$name\`" docs/rust.md
done

# ---- a library that is there
if command -v pkg-config > /dev/null 2>&1; then
    $CC -std=gnu11 -O0 -DCOLL__ONE_TIER -fPIC -shared coll.c -o "$dir/libcoll.so" -pthread || exit 1
    printf 'Name: coll\nDescription: collectives\nVersion: 0\nLibs: -L%s -lcoll\n' "$dir" > "$dir/coll.pc"
    export PKG_CONFIG_PATH="$dir" LD_LIBRARY_PATH="$dir" CARGO_TARGET_DIR="$dir/system"
    check "with the library of the system" cd_cargo build --offline -p coll --features system --example sum
    check "it is linked" sh -c "ldd $dir/system/debug/examples/sum | grep -q libcoll.so"
    check "and runs" says "$sums" "$dir/system/debug/examples/sum"
else echo "left out: there is no pkg-config"; fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
