# from_0_3.sed - turn a program for coll.h 0.3 into one for this version.  docs/versions.md lists what changes.
#   usage: sed -E -i -f from_0_3.sed FILE...          C, C++, Fortran and Python; look at the result, as with every such script

# ---- names
s/\<coll_parent_rank\>/coll_world_rank/g
s/\<parent_rank\>/world_rank/g
s/\<(COLL_)?NO_RANK\>/\1RANK_NONE/g
s/\<(COLL_)?NO_COLOR\>/\1COLOR_NONE/g
s/\<coll_buffer\>/coll_list_item/g
s/\<coll_alloc_free\>/coll_dealloc/g

# ---- the result first: coll_reduce_local(inout, in, ...).  An argument may contain brackets within brackets
s/\<coll_reduce_local *\((([^,()]|\(([^()]|\([^()]*\))*\))+), *(([^,()]|\(([^()]|\([^()]*\))*\))+),/coll_reduce_local(\4, \1,/g
