/* What the exhaustive search does hundreds of millions of times; `kernel.py` says what each function is for.

   A world is `columns` numbers. A tree is a function of a world that was learnt: a node names the column that the
   function looks at next, an edge its value, and a leaf what it came to. Nodes count from 1, 0 is what nobody knows,
   and a leaf is ~ its place in the pool. What does not fit into memory ends the process. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MISSED, REST, LAYER, DONE };
enum { MOST = 1024 };   /* events that may be next in one world */

typedef struct { uint64_t key; int64_t child; } Edge;   /* key: the node and the value */
typedef struct { uint64_t low, high; } Digest;
typedef struct { int32_t *worlds; uint64_t count, room; } Layer;

typedef struct {
    /* the head, which `kernel.py` reads */
    uint64_t states, transitions, limits;
    uint64_t number;   /* of the world that is looked at */
    int32_t missed;    /* the tree that has no leaf for it */
    int32_t rested;    /* it was halted for at rest */
    /* all else */
    int32_t columns, stride, faults;
    Layer here, next;
    uint64_t at;       /* in `here` */
    int32_t *sources; int32_t source_count, plain_count;   /* faults are the last of them */
    int32_t *roots; int32_t root_count;
    int32_t *nodes; uint64_t node_count;
    int32_t *pool; uint64_t pool_count;
    Edge *edges; uint64_t edge_count, edge_mask;
    Digest *seen; uint64_t seen_mask;
    uint32_t *parents; uint16_t *places;
    int32_t chosen[MOST];    /* events that may be next, */
    int64_t effects[MOST];   /* and what they do */
} Search;

static void *grown(void *memory, uint64_t count, size_t size)
{
    if (!(memory = realloc(memory, count * size))) abort();
    return memory;
}

/* Room for one more in an array that has so many: always a power of two. */
static void *one_more(void *memory, uint64_t count, size_t size)
{
    return count & (count - 1) ? memory : grown(memory, count ? 2 * count : 1, size);
}

static uint64_t rotated(uint64_t x, int by) { return x << by | x >> (64 - by); }

static uint64_t mixed(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

/* MurmurHash3, x64, 128 bits. */
static Digest digest(const int32_t *world, int32_t stride)
{
    uint64_t h = 0, g = 0, k, m;
    for (int32_t at = 0; at < stride; at += 4) {
        memcpy(&k, world + at, 8);
        memcpy(&m, world + at + 2, 8);
        h ^= rotated(k * 0x87c37b91114253d5u, 31) * 0x4cf5ad432745937fu;
        h = (rotated(h, 27) + g) * 5 + 0x52dce729;
        g ^= rotated(m * 0x4cf5ad432745937fu, 33) * 0x87c37b91114253d5u;
        g = (rotated(g, 31) + h) * 5 + 0x38495ab5;
    }
    h ^= 4u * stride, g ^= 4u * stride;
    h += g, g += h;
    h = mixed(h), g = mixed(g);
    h += g, g += h;
    return (Digest){h ? h : 1, g};
}

static Digest *slot(Digest *table, uint64_t mask, Digest sought)
{
    uint64_t at = sought.low & mask;
    while (table[at].low && (table[at].low != sought.low || table[at].high != sought.high)) at = (at + 1) & mask;
    return table + at;
}

static Edge *edge(const Search *s, uint64_t key)
{
    uint64_t at = mixed(key) & s->edge_mask;
    while (s->edges[at].key && s->edges[at].key != key) at = (at + 1) & s->edge_mask;
    return s->edges + at;
}

static uint64_t key_of(int64_t node, int32_t value) { return (uint64_t)node << 32 | (uint32_t)value; }

static int64_t find(const Search *s, int32_t tree, const int32_t *world)
{
    int64_t node = s->roots[tree];
    while (node > 0) node = edge(s, key_of(node, world[s->nodes[node]]))->child;
    return node;
}

static void add(Search *s, const int32_t *world, uint64_t parent, uint16_t place)
{
    Digest sought = digest(world, s->stride), *found = slot(s->seen, s->seen_mask, sought);
    if (found->low) return;
    *found = sought;
    s->parents = one_more(s->parents, s->states, sizeof *s->parents);
    s->places = one_more(s->places, s->states, sizeof *s->places);
    s->parents[s->states] = parent;
    s->places[s->states++] = place;
    if (s->next.count == s->next.room) {
        s->next.room = s->next.room ? 2 * s->next.room : 64;
        s->next.worlds = grown(s->next.worlds, s->next.room, s->stride * sizeof *world);
    }
    memcpy(s->next.worlds + s->next.count++ * s->stride, world, s->stride * sizeof *world);
    if (4 * s->states > 3 * s->seen_mask) {
        uint64_t mask = 2 * s->seen_mask + 1;
        Digest *table = calloc(mask + 1, sizeof *table);
        if (!table) abort();
        for (uint64_t at = 0; at <= s->seen_mask; at++)
            if (s->seen[at].low) *slot(table, mask, s->seen[at]) = s->seen[at];
        free(s->seen);
        s->seen = table, s->seen_mask = mask;
    }
}

/* What may happen in a world, by all sources up to this one; -1 if a source is to be learnt. */
static int32_t choose(Search *s, const int32_t *world, int32_t from, int32_t to, int32_t count)
{
    for (; from < to; from++) {
        int64_t leaf = find(s, s->sources[from], world);
        if (!leaf) return s->missed = s->sources[from], -1;
        const int32_t *events = s->pool + ~leaf;
        for (int32_t at = 1; at <= events[0]; at++) {
            if (count == MOST) abort();
            s->chosen[count++] = events[at];
        }
    }
    return count;
}

/* All that may happen in a world happens, once it is known what each does. */
static int expand(Search *s, const int32_t *world)
{
    int32_t after[s->stride], count = choose(s, world, 0, s->plain_count, 0);
    if (count < 0) return MISSED;
    if (!count && !s->rested) return s->rested = 1, REST;
    if (world[s->faults] && (count = choose(s, world, s->plain_count, s->source_count, count)) < 0) return MISSED;
    for (int32_t place = 0; place < count; place++)
        if (!(s->effects[place] = find(s, s->chosen[place], world)))
            return s->missed = s->chosen[place], MISSED;
    for (int32_t place = 0; place < count; place++) {
        const int32_t *effect = s->pool + ~s->effects[place];
        s->limits += effect[1];
        if (effect[2]) continue;
        memcpy(after, world, sizeof after);
        for (int32_t at = 3; at < 3 + 2 * effect[0]; at += 2) after[effect[at]] = effect[at + 1];
        add(s, after, s->number, place);
    }
    s->transitions += count;
    return -1;
}

Search *search_new(int32_t columns, int32_t faults)
{
    Search *s = calloc(1, sizeof *s);
    if (!s) abort();
    s->columns = columns, s->stride = (columns + 3) & ~3, s->faults = faults;
    s->edge_mask = s->seen_mask = 1023;
    s->edges = calloc(1024, sizeof *s->edges);
    s->seen = calloc(1024, sizeof *s->seen);
    if (!s->edges || !s->seen) abort();
    s->nodes = one_more(NULL, 0, sizeof *s->nodes);
    s->node_count = 1;
    return s;
}

void search_free(Search *s)
{
    void *all[] = {s->here.worlds, s->next.worlds, s->sources, s->roots, s->nodes, s->pool, s->edges, s->seen,
                   s->parents, s->places, s};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) free(all[at]);
}

int32_t search_tree(Search *s)
{
    s->roots = one_more(s->roots, s->root_count, sizeof *s->roots);
    s->roots[s->root_count] = 0;
    return s->root_count++;
}

void search_source(Search *s, int32_t tree, int32_t is_fault)
{
    s->sources = one_more(s->sources, s->source_count, sizeof *s->sources);
    s->sources[s->source_count++] = tree;
    s->plain_count += !is_fault;
}

int64_t search_leaf(Search *s, int32_t count, const int32_t *numbers)
{
    uint64_t begin = s->pool_count;
    for (int32_t at = 0; at < count; at++) {
        s->pool = one_more(s->pool, s->pool_count, sizeof *s->pool);
        s->pool[s->pool_count++] = numbers[at];
    }
    return ~(int64_t)begin;
}

static int64_t node(Search *s, int32_t column)
{
    s->nodes = one_more(s->nodes, s->node_count, sizeof *s->nodes);
    s->nodes[s->node_count] = column;
    return s->node_count++;
}

static void more_edges(Search *s)
{
    Search bigger = {.edge_mask = 2 * s->edge_mask + 1};
    if (!(bigger.edges = calloc(bigger.edge_mask + 1, sizeof *s->edges))) abort();
    for (uint64_t at = 0; at <= s->edge_mask; at++)
        if (s->edges[at].key) *edge(&bigger, s->edges[at].key) = s->edges[at];
    free(s->edges);
    s->edges = bigger.edges, s->edge_mask = bigger.edge_mask;
}

int32_t search_learn(Search *s, int32_t tree, int32_t count, const int32_t *columns, const int32_t *values, int64_t leaf)
{
    if (!s->roots[tree]) s->roots[tree] = count ? node(s, columns[0]) : leaf;
    int64_t at = s->roots[tree];
    for (int32_t nth = 0; nth < count; nth++) {
        if (at <= 0 || s->nodes[at] != columns[nth]) return 0;
        if (2 * s->edge_count > s->edge_mask) more_edges(s);
        Edge *taken = edge(s, key_of(at, values[nth]));
        if (!taken->key) {
            *taken = (Edge){key_of(at, values[nth]), nth + 1 < count ? node(s, columns[nth + 1]) : leaf};
            s->edge_count++;
        }
        at = taken->child;
    }
    return at == leaf;
}

void search_begin(Search *s, const int32_t *world)
{
    int32_t padded[s->stride];
    memset(padded, 0, sizeof padded);
    memcpy(padded, world, s->columns * sizeof *world);
    add(s, padded, 0, 0);
}

const int32_t *search_world(const Search *s) { return s->here.worlds + s->at * s->stride; }

uint32_t search_found_by(const Search *s, uint32_t number, uint16_t *place)
{
    *place = s->places[number];
    return s->parents[number];
}

int32_t search_run(Search *s)
{
    for (; s->at < s->here.count; s->at++, s->number++) {
        int halt = expand(s, search_world(s));
        if (halt >= 0) return halt;
        s->rested = 0;
    }
    Layer done = s->here;
    s->here = s->next, s->next = done, s->next.count = 0, s->at = 0;
    return s->here.count ? LAYER : DONE;
}
