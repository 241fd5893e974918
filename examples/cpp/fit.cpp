// fit.cpp - a data parallel step in C++: every rank has its own samples, and all fit one polynomial to them by gradient descent.
//
//     cc -c coll.c && g++ -std=c++17 -I. examples/cpp/fit.cpp coll.o -o fit -pthread
//     ./fit                         four threads                coll-run -n 4 ./fit          four processes
//
// All ranks must have the same bits in the end, and the polynomial is known; the program fails where that is not so.
#include "coll.hpp"

#include <array>
#include <cmath>
#include <cstdio>

using polynomial = std::array<double, 3>;

static double at(const polynomial &p, double x) { return p[0] + x * (p[1] + x * p[2]); }

static bool fit(coll::communicator &comm)
{
    const polynomial truth = { 1, -2, 0.5 };
    polynomial p = {}, gradient;
    coll::prepared average = comm.prepare().allreduce(coll::in_place(gradient), coll::avg);

    for (int step = 0; step < 400; step++) {
        gradient = {};
        for (int i = comm.rank(); i < 64; i += comm.size()) {             // this rank's samples
            const double x = i / 32.0 - 1, wrong = at(p, x) - at(truth, x);
            for (std::size_t k = 0; k < p.size(); k++) gradient[k] += wrong * std::pow(x, k) * comm.size() / 64;
        }
        average();
        for (std::size_t k = 0; k < p.size(); k++) p[k] -= gradient[k];
    }
    const bool is_same = comm.allreduce(coll::from_to(p, polynomial()), coll::max) == p;
    if (comm.rank() == 0) std::printf("%d ranks: %.3f %+.3f x %+.3f x^2\n", comm.size(), p[0], p[1], p[2]);
    return comm.allreduce(is_same && std::fabs(p[1] - truth[1]) < 1e-6, coll::land);
}

int main()
{
    if (std::getenv("COLL_RANK")) { coll::communicator comm = coll::init(); return fit(comm) ? 0 : 1; }
    for (bool is_right : coll::spawn(4, fit)) if (!is_right) return 1;
}
