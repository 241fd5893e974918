// cpp_matrices.hpp - coll::matrix_view: blocks that are columns of a matrix, in every call that takes them, in every form of
// buffers and of calls.  Every rank has rows, gaps and a beginning of its own, some have a vector instead; all of their memory
// is compared, also what is between the rows.  Used by test_cpp.cpp, after its values.
#ifndef CPP_MATRICES_HPP
#define CPP_MATRICES_HPP

// Blocks side by side, each of `rows` rows of `row` elements, in memory of which everything else is unchanged.
template <class T> struct board {
    std::size_t rows, row, blocks, stride, first;
    std::vector<T> memory;

    board(std::size_t of_rows, std::size_t of_elements, std::size_t side_by_side, std::size_t gap)
        : rows(of_rows), row(of_elements), blocks(side_by_side), stride(row * blocks + gap), first(gap),
          memory(first + rows * stride + 2)
    { for (std::size_t i = 0; i < memory.size(); i++) memory[i] = value<T>(5, i); }

    coll::matrix_view<T> view() { return coll::matrix_view(memory, rows, row * blocks, stride, first); }
    void set(std::size_t block, const std::vector<T> &elements)
    {
        for (std::size_t k = 0; k < elements.size(); k++) view()[k / row][block * row + k % row] = elements[k];
    }
    board with(std::size_t block, const std::vector<T> &elements) const
    {
        board changed = *this;
        changed.set(block, elements);
        return changed;
    }
    bool operator==(const board &other) const { return same(memory, other.memory); }
};

// The matrices of one rank: of one block, and of a block for every rank; and the same as the calls are to leave them.
template <class T> struct matrices {
    const coll::communicator &comm;
    const std::size_t ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank()), count;
    const std::vector<T> x = mine<T>(comm.rank(), count);
    std::vector<T> all, wide = mine<T>(comm.rank(), count * ranks), turned;
    const board<T> one, many;                     // with nothing in them
    board<T> own = one.with(0, x), gathered = many, sent = many, swapped = many;

    matrices(const coll::communicator &of, std::size_t rows, std::size_t row)
        : comm(of), count(rows * row), one(rows, row, 1, me % 3), many(rows, row, ranks, (me + 1) % 3)
    {
        for (std::size_t i = 0; i < ranks; i++) {
            const int rank = static_cast<int>(i);
            const std::vector<T> theirs = mine<T>(rank, count), to_me = mine<T>(rank, count, me * count);
            all.insert(all.end(), theirs.begin(), theirs.end()), turned.insert(turned.end(), to_me.begin(), to_me.end());
            gathered.set(i, theirs), swapped.set(i, to_me), sent.set(i, part(wide, i * count, count));
        }
    }

    void rooted(int root)
    {
        const bool is_root = comm.rank() == root;
        const std::vector<T> roots = mine<T>(root, count), none;
        const board<T> wanted = one.with(0, roots);
        board<T> a = is_root ? own : one, b = one, c = many;
        std::vector<T> y = x;

        if (me % 3 == 1) comm.broadcast(y, root);             // in one piece on some ranks: on the way it is the same
        else comm.broadcast(a.view(), root);
        check(me % 3 == 1 ? same(y, roots) : a == wanted, comm, "broadcast of a matrix");
        a = is_root ? own : one;
        const coll::matrix_view<T> kept = a.view();
        comm.start().broadcast(kept, root).wait();
        check(a == wanted, comm, "broadcast of a matrix, started");
        coll::prepared again = comm.prepare().broadcast(b.view(), root);
        for (int i = 0; i < 2; i++) {
            if (is_root) b.set(0, roots);
            again();
            check(b == wanted, comm, "broadcast of a matrix, prepared");
            b.memory = one.memory;
        }

        check(same(comm.gather(own.view(), root), is_root ? all : none), comm, "gather of matrices");
        comm.gather(coll::from_to(x, c.view()), root);
        check(c == (is_root ? gathered : many), comm, "gather into a matrix");
        c = many;
        comm.start().gather(coll::from_to(own.view(), c.view()), root).wait();
        check(c == (is_root ? gathered : many), comm, "gather of matrices into a matrix, started");
        c = many.with(me, x), a = own;
        comm.gather(coll::in_place(is_root ? c.view() : a.view()), root);
        check(a == own && c == (is_root ? gathered : many.with(me, x)), comm, "gather of matrices in place");

        const board<T> to_all = gathered;
        a = one, c = gathered;
        const coll::matrix_view<T> nowhere({}, 3, 5);         // for ranks that do not send
        check(same(comm.scatter(is_root ? c.view() : nowhere, root, count), x), comm, "scatter of a matrix");
        if (is_root) comm.scatter(coll::from_to(c.view(), a.view()), root);
        else comm.scatter(coll::into(a.view()), root);
        check(a == own && c == to_all, comm, "scatter of a matrix into matrices");
        a = one;
        comm.start().scatter(coll::from_to(all, a.view()), root).wait();
        check(a == own, comm, "scatter into matrices, started");
        a = one;
        comm.scatter(coll::in_place(is_root ? c.view() : a.view()), root);
        check(c == to_all && a == (is_root ? one : own), comm, "scatter of a matrix in place");
    }

    void among_all()
    {
        board<T> c = many, from = sent;
        std::vector<T> y(count * ranks);

        check(same(comm.allgather(own.view()), all), comm, "allgather of matrices");
        if (me % 2) comm.allgather(coll::from_to(x, c.view()));
        else comm.allgather(coll::from_to(own.view(), y));
        check(me % 2 ? c == gathered : same(y, all), comm, "allgather into a matrix");
        c = many;
        comm.start().allgather(coll::from_to(own.view(), c.view())).wait();
        check(c == gathered, comm, "allgather of matrices into a matrix, started");
        c = many.with(me, x);
        comm.allgather(coll::in_place(c.view()));
        check(c == gathered, comm, "allgather of matrices in place");

        check(same(comm.alltoall(from.view()), turned) && from == sent, comm, "alltoall of a matrix");
        c = many;
        comm.alltoall(coll::from_to(wide, c.view()));
        check(c == swapped, comm, "alltoall into a matrix");
        c = many;
        coll::prepared again = comm.prepare().alltoall(coll::from_to(from.view(), c.view()));
        again();
        check(c == swapped, comm, "alltoall of a matrix into a matrix, prepared");
        comm.alltoall(coll::in_place(from.view()));
        check(from == swapped, comm, "alltoall of a matrix in place");
        check(comm.explain().alltoall(sent.view()).find("alltoall") != std::string::npos, comm, "explain with a matrix");
    }
};

// Odd numbers of rows and elements; none; one row, and rows of one element.
template <class T> static void matrices_of(const coll::communicator &comm)
{
    const std::size_t forms[][2] = { { 3, 5 }, { 1, 7 }, { 4, 1 }, { 0, 3 }, { 3, 0 }, { 37, 11 } };

    for (const auto &form : forms) {
        matrices<T> have(comm, form[0], form[1]);
        for (int root : { 0, comm.size() / 2, comm.size() - 1 }) have.rooted(root);
        have.among_all();
    }
}

// Rows in one piece are what their elements are: the other side may be of any rows.  A matrix of columns is turned, and back.
static void matrices_of_programs(const coll::communicator &comm)
{
    const std::size_t ranks = static_cast<std::size_t>(comm.size()), me = static_cast<std::size_t>(comm.rank());
    const std::size_t wide = 2 * ranks;
    std::vector<int> rows, columns(3 * ranks * 2), back(3 * wide), other(6 * ranks);

    for (std::size_t i = 0; i < 3 * wide; i++) rows.push_back(static_cast<int>(me * 1000 + i));
    comm.alltoall(coll::from_to(coll::matrix_view(rows, 3, wide), columns));
    bool is_right = true;
    for (std::size_t i = 0; i < 3 * ranks; i++)
        for (std::size_t k = 0; k < 2; k++)
            is_right = is_right && columns[2 * i + k] == static_cast<int>(i / 3 * 1000 + i % 3 * wide + me * 2 + k);
    check(is_right, comm, "rows become columns");
    comm.alltoall(coll::from_to(columns, coll::matrix_view(back, 3, wide)));
    check(same(rows, back), comm, "columns become rows");
    const std::vector<int> shard(columns.begin(), columns.begin() + 6);
    comm.allgather(coll::from_to(coll::matrix_view(shard, 2, 3), coll::matrix_view(other, 3, wide)));
    comm.broadcast(coll::matrix_view(coll::span<int>(other.data(), 6), 2, 3));
    std::array<std::array<int, 4>, 3> grid{};
    grid[2][1] = comm.rank() == 0 ? 7 : 1;
    comm.broadcast(coll::matrix_view(coll::span<int>(grid[0].data(), 12), 3, 2, 4, 1));
    check(grid[2][1] == 7 && grid[2][3] == 0, comm, "columns of a local matrix");
    std::vector<int> all(6 * ranks);
    comm.allgather(coll::from_to(shard, all));
    is_right = true;
    for (std::size_t i = 1; i < ranks; i++)       // block 0 has been written over
        for (std::size_t k = 0; k < 6; k++) is_right = is_right && other[k / 2 * wide + 2 * i + k % 2] == all[6 * i + k];
    check(is_right, comm, "a matrix in one piece into one of other rows");
}

#if !defined(COLL_CPP_NO_EXCEPTIONS)
static void wrong_matrices(coll::communicator &comm)
{
    const std::size_t ranks = static_cast<std::size_t>(comm.size()), most = ~std::size_t();
    std::vector<float> x(23), y(6 * ranks), z(12 * ranks);
    const auto of = [&](std::size_t rows, std::size_t columns, std::size_t stride = 0, std::size_t first = 0) {
        return coll::matrix_view(x, rows, columns, stride, first);
    };

    refuses(comm, [&] { comm.broadcast(of(3, 4, 10)); },
            "broadcast: a matrix of 3 rows of 4 elements, 10 apart, reaches beyond the 23 elements of its memory");
    refuses(comm, [&] { comm.start().broadcast(of(1, 24)).wait(); }, "");
    refuses(comm, [&] { comm.broadcast(of(1, 1, 1, 23)); }, "reaches beyond the 0 elements");
    refuses(comm, [&] { comm.broadcast(of(1, 1, 1, most)); }, "reaches beyond the 0 elements");
    refuses(comm, [&] { comm.broadcast(of(most / 2 + 2, 2)); }, "reaches beyond the 23 elements");
    refuses(comm, [&] { comm.broadcast(of(2, 3, most)); }, "reaches beyond the 23 elements");
    refuses(comm, [&] { comm.broadcast(of(3, 4, 3)); }, "recv_stride 3 is shorter than a row of 4 elements");
    refuses(comm, [&] { comm.allgather(coll::from_to(of(2, 2, 5), y)); }, "allgather: the output has");
    refuses(comm, [&] { comm.allgather(coll::from_to(of(2, 3, 5), coll::matrix_view(z, 3, 2 * ranks, 4 * ranks))); },
            "has 2 in a block, and the input 3");
    refuses(comm, [&] { comm.start().alltoall(coll::in_place(coll::matrix_view(x, 2, 24 * ranks))).wait(); }, "");
    if (comm.size() > 1) {
        refuses(comm, [&] { comm.alltoall(coll::matrix_view(z, 2, 2 * ranks + 1)); }, "no multiple of its");
        refuses(comm, [&] { comm.allgather(coll::from_to(of(2, 3, 5), coll::matrix_view(y, 2, 3))); }, "");
    }
    check(std::all_of(x.begin(), x.end(), [](float one) { return one == 0; }), comm, "nothing was written");
}
#endif
#endif
