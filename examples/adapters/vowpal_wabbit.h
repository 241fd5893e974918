/* vowpal_wabbit.h - Vowpal Wabbit's class all_reduce_sockets over coll.h: no spanning-tree server.
 *
 * In Vowpal Wabbit 9, the header allreduce.h includes this file in the place of its own class, allreduce_sockets.cc becomes
 * empty, and coll.c is linked.  The options of the program keep their names:
 *
 *     --span_server HOST --span_server_port PORT        where node 0 listens; HOST may be file:PATH of a directory that all
 *                                                       nodes share
 *     --unique_id ID --total NODES --node NODE          which job, how many nodes, and which one this process is
 *
 * If a node fails, the others throw an exception that names it. */
#pragma once

#include "coll.h"

#include <type_traits>

namespace VW
{
class all_reduce_sockets : public all_reduce_base
{
public:
  all_reduce_sockets(std::string server, const int port, const size_t unique_id, size_t nodes, const size_t pnode, bool pquiet)
      : all_reduce_base(nodes, pnode, pquiet)
      , _address(server.compare(0, 5, "file:") == 0 ? server : server + ':' + std::to_string(port))
      , _world("vw " + std::to_string(unique_id))
  {
  }
  ~all_reduce_sockets() override { coll_free(_comm); }
  all_reduce_sockets(const all_reduce_sockets&) = delete;
  all_reduce_sockets& operator=(const all_reduce_sockets&) = delete;

  template <class T, void (*f)(T&, const T&)>
  void all_reduce(T* buffer, const size_t n, VW::io::logger&)
  {
    if (_comm == nullptr) { join(); }
    coll_call call{};
    call.kind = COLL_ALLREDUCE, call.send = COLL_IN_PLACE, call.recv = buffer, call.count = n, call.name = "Vowpal Wabbit";
    // The only operation that Vowpal Wabbit has for floats is the sum.
    if (std::is_same<T, float>::value) { call.type = COLL_F32, call.op = COLL_SUM; }
    else { call.type = COLL_BLOB(sizeof(T)), call.op = COLL_USER, call.fn = combine<T, f>; }
    if (coll_run(_comm, &call) != COLL_OK) THROW(coll_error(_comm));
  }

private:
  std::string _address, _world;
  coll_comm* _comm = nullptr;

  void join()
  {
    coll_config config{};
    config.rank = static_cast<int>(node), config.size = static_cast<int>(total);
    config.address = _address.c_str(), config.world = _world.c_str();
    if (coll_init(&_comm, &config) != COLL_OK) THROW(coll_error(nullptr));
  }

  template <class T, void (*f)(T&, const T&)>
  static void combine(const void* in, void* inout, size_t count, coll_type, void*)
  {
    for (size_t i = 0; i < count; i++) { f(static_cast<T*>(inout)[i], static_cast<const T*>(in)[i]); }
  }
};
}  // namespace VW
