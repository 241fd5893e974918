# from_0_3.sed - turn a program for coll.h 0.3 into one for this version.  docs/versions.md lists what changes.
#   usage: sed -E -i -f from_0_3.sed FILE...          C and C++; look at the result, and compile it with all warnings

# ---- calls that go on for several lines are read whole
/\<coll_(spawn|init_custom|reduce_local) *\(/{
    :call
    /\<coll_(spawn|init_custom|reduce_local) *\(([^()]|\(([^()]|\(([^()]|\([^()]*\))*\))*\))*$/{
        $!{
            N
            b call
        }
    }
}
/\.kind *= *COLL_(SEND|RECV|SENDRECV)\>/{
    :message
    /\.kind *= *COLL_(SEND|RECV|SENDRECV)\>[^;}]*$/{
        $!{
            N
            b message
        }
    }
}

# ---- one function instead of two: the configuration is the last argument of coll_spawn and coll_init_custom, and may be NULL
s/\<(coll_spawn|coll_init_custom) *\((([^()]|\(([^()]|\(([^()]|\([^()]*\))*\))*\))*)\)/\1(\2, NULL)/g
s/\<coll_spawn_with\>/coll_spawn/g
s/\<coll_init_custom_with\>/coll_init_custom/g

# ---- messages have a peer, not a root.  Where `root` is set in a statement of its own, coll_run says so
s/(\.kind *= *COLL_(SEND|RECV|SENDRECV)\>[^;}]*)\.root\>/\1.peer/g

# ---- the result first: coll_reduce_local(inout, in, ...).  An argument may contain brackets within brackets
s/\<coll_reduce_local *\((([^,()]|\(([^()]|\([^()]*\))*\))+), *(([^,()]|\(([^()]|\([^()]*\))*\))+),/coll_reduce_local(\4, \1,/g

# ---- 0 is the default: -1 is none, or never
s/\<COLL_(SPIN_US|STALL_TIMEOUT_MS)=0\>/COLL_\1=-1/g
s/("COLL_(SPIN_US|STALL_TIMEOUT_MS)", *)"0"/\1"-1"/g

# ---- coll.h does not include stdio.h any more
s/^# *include *["<]([^">]*\/)?coll\.h[">].*/&\n#include <stdio.h>/

# ---- names
s/\<coll_parent_rank\>/coll_world_rank/g
s/\<parent_rank\>/world_rank/g
s/\<(COLL_)?NO_RANK\>/\1RANK_NONE/g
s/\<(COLL_)?NO_COLOR\>/\1COLOR_NONE/g
s/\<coll_buffer\>/coll_list_item/g
s/\<coll_alloc_free\>/coll_dealloc/g
s/\<COLL_HUB\>/COLL_SHM_COLLECTIVES/g
s/\<tcp\.hub\>/tcp.shm_collectives/g
s/(\.tcp *= *\{[^}]*)\.hub\>/\1.shm_collectives/g
