#ifndef COLL_TCP_H
#define COLL_TCP_H
typedef struct coll__tcp coll__tcp;
static coll_status coll__tcp_open(coll__tcp **out, const coll__settings *s, const coll__log *log) { (void)out,(void)s,(void)log; return coll__start_failed(COLL_ERR_UNSUPPORTED, "tcp"); }
static int coll__tcp_local_size(coll__tcp *t){(void)t;return 1;}
static const char*td(const void*c){(void)c;return "";}
static const coll_transport coll__tcp_transport = { .name="tcp", .describe=td };
#endif
