/* vowpal_wabbit.cc - examples/adapters/vowpal_wabbit.h with stand-ins for what it takes from Vowpal Wabbit: sums, an operation of
 * another type, and a node that ends.
 *
 *     vowpal_wabbit ADDRESS TOTAL NODE [LAST]    node LAST ends before the last call; prints "ok", or what was thrown */
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#define THROW(text) throw std::runtime_error(text)

namespace VW
{
namespace io
{
class logger {};
}
class all_reduce_base
{
public:
  const size_t total;
  const size_t node;
  all_reduce_base(size_t nodes, size_t number, bool) : total(nodes), node(number) {}
  virtual ~all_reduce_base() {}
};
}

#include "../../examples/adapters/vowpal_wabbit.h"

static void add(float &a, const float &b) { a += b; }

struct longest { int bytes; char name[11]; };

static void keep(longest &a, const longest &b)
{
  if (b.bytes > a.bytes) { a = b; }
}

static bool is_right(VW::all_reduce_sockets &job)
{
  VW::io::logger log;
  const int total = static_cast<int>(job.total), node = static_cast<int>(job.node);
  std::vector<float> x(100003);
  std::vector<longest> names(17);
  bool right = true;

  for (size_t i = 0; i < x.size(); i++) { x[i] = static_cast<float>(static_cast<int>(i % 91) * (node + 1)); }
  for (int i = 0; i < 17; i++)
  {
    names[static_cast<size_t>(i)].bytes = (node + i) % total;
    std::snprintf(names[static_cast<size_t>(i)].name, 11, "node %d", node);
  }
  job.all_reduce<float, add>(x.data(), x.size(), log);
  job.all_reduce<longest, keep>(names.data(), names.size(), log);
  for (size_t i = 0; i < x.size(); i++)
  {
    right = right && x[i] == static_cast<float>(static_cast<int>(i % 91) * (total * (total + 1) / 2));
  }
  for (int i = 0; i < 17; i++)
  {
    const int wanted = ((total - 1 - i) % total + total) % total;
    right = right && names[static_cast<size_t>(i)].name == "node " + std::to_string(wanted);
  }
  return right;
}

int main(int argc, char **argv)
{
  if (argc < 4) { return 2; }
  const size_t total = std::strtoul(argv[2], nullptr, 10), node = std::strtoul(argv[3], nullptr, 10);
  const long last = argc > 4 ? std::atol(argv[4]) : -1;
  VW::io::logger log;
  float one = 1;

  try
  {
    VW::all_reduce_sockets job(argv[1], 0, 7, total, node, true);
    if (!is_right(job)) { return std::puts("wrong"), 1; }
    if (last == static_cast<long>(node)) { return 0; }
    job.all_reduce<float, add>(&one, 1, log);
  }
  catch (const std::exception &error)
  {
    return std::puts(error.what()), 3;
  }
  return std::puts(one == static_cast<float>(total) ? "ok" : "wrong"), 0;
}
