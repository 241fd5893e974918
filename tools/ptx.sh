#!/bin/sh
# ptx.sh [FILE] - compile the kernels for GPUs to PTX text, as a C header; without FILE to standard output.
#
# The text is made smaller, not changed: no comments, short names, many statements in a line.  nvcc writes the newest version of
# PTX, which a driver of before would refuse; what is in the text is older, and so .version says 6.4, and ptxas looks whether that
# is true.  NVCC names the compiler; the bits of the text depend on its version, which the header records.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
nvcc=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$nvcc" -arch=compute_75 -ptx -fmad=false -prec-div=true -ftz=false -o "$work/whole.ptx" \
    "$here/carriers/nccl/coll_nccl_kernels.cu"
version=$("$nvcc" --version | sed -n 's/.*V\([0-9.]*\)$/\1/p')
sed 's,//.*,,; s/[ \t][ \t]*/ /g; s/^ //; s/ $//; /^$/d; s/^\.version.*/.version 6.4/
     s/%SPL/%L/g; s/%SP/%S/g; s/_param_/_/g; s/\$L__BB/L/g; s/, /,/g' "$work/whole.ptx" > "$work/short.ptx"
"$(dirname "$nvcc")/ptxas" -arch=sm_75 -o "$work/cubin" "$work/short.ptx"
{
    cat <<TEXT
/* coll_nccl_ptx.h - the kernels of coll_nccl_kernels.cu as PTX text, which the driver of a GPU compiles for it.  Written by
 * tools/ptx.sh (make ptx) with nvcc $version; compute capability 7.5 and later.  In pieces, because long literals are not C11. */
#ifndef COLL_NCCL_PTX_H
#define COLL_NCCL_PTX_H

static const char *const coll__nccl_ptx[] = {
TEXT
    awk '{ own = /^\./ && !/^\.(reg|local|param|pragma)/ || /^[({})]$/   # directives end with their line
           if (text != "" && (own || last || length(text) + length($0) > 116)) { print "    \"" text "\\n\","; text = "" }
           gsub(/"/, "\\\"")
           text = text (text == "" ? "" : " ") $0; last = own }
         END { print "    \"" text "\\n\"," }' "$work/short.ptx"
    printf '    NULL\n};\n\n#endif /* COLL_NCCL_PTX_H */\n'
} > "$work/header"
if [ $# -gt 0 ]; then cp "$work/header" "$1"; else cat "$work/header"; fi
