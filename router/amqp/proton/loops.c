/* What is done to many deliveries at once, in one call from Python. The same loops are in loops.py, which says what each
   is for; they do the same, and a test holds them to it.

   Proton is not linked: its functions are those of python-qpid-proton's own module, which `init` is given. */

typedef struct { size_t size; const char *start; } pn_bytes_t;

static struct {
  void *(*peek)(void *collector);
  bool (*pop)(void *collector);
  int (*type)(void *event);
  void *(*link)(void *event);
  void *(*delivery)(void *event);
  bool (*readable)(void *delivery);
  bool (*partial)(void *delivery);
  bool (*aborted)(void *delivery);
  size_t (*pending)(void *delivery);
  pn_bytes_t (*tag)(void *delivery);
  bool (*settled)(void *delivery);
  uint64_t (*remote_state)(void *delivery);
  void (*settle)(void *delivery);
  void (*update)(void *delivery, uint64_t state);
  void *(*make)(void *link, pn_bytes_t tag);
  bool (*advance)(void *link);
  ssize_t (*recv)(void *link, char *bytes, size_t size);
  ssize_t (*send)(void *link, const char *bytes, size_t size);
} pn;

static int DELIVERY, NOTHING;  /* kinds of events */

/* The functions, in the order in which they stand above. False: these are not so many. */
static bool init(void **functions, int count, int delivery, int nothing)
{
  if (count * sizeof *functions != sizeof pn) return false;
  memcpy(&pn, functions, sizeof pn);
  DELIVERY = delivery;
  NOTHING = nothing;
  return true;
}

/* Whose event is the next one, if it is a delivery of this link; NULL otherwise. */
static void *next_of(void *collector, void *link)
{
  void *event;
  while ((event = pn.peek(collector))) {
    int type = pn.type(event);
    if (type == DELIVERY) return pn.link(event) == link ? pn.delivery(event) : NULL;
    if (type != NOTHING) return NULL;
    pn.pop(collector);
  }
  return NULL;
}

/* `sizes` are those of each tag and of its message, `out` has them one behind the other. */
static int transfers(void *collector, void *link, size_t most, int count, void *handles, bool *settled,
                     uint32_t *sizes, char *out, size_t room)
{
  void **found = handles, *delivery;
  int n = 0;
  while (n < count && (delivery = next_of(collector, link))) {
    if (!pn.readable(delivery) || pn.partial(delivery) || pn.aborted(delivery)) break;
    pn_bytes_t tag = pn.tag(delivery);
    size_t size = pn.pending(delivery);
    if (!size || size >= most || tag.size + size > room) break;
    if (tag.size) memcpy(out, tag.start, tag.size);
    pn.recv(link, out + tag.size, size);
    out += tag.size + size;
    room -= tag.size + size;
    sizes[2 * n] = tag.size;
    sizes[2 * n + 1] = size;
    found[n] = delivery;
    settled[n] = pn.settled(delivery);
    if (settled[n++]) pn.settle(delivery);  /* advances the link, too */
    else pn.advance(link);
    pn.pop(collector);
  }
  return n;
}

static int news(void *collector, void *link, bool sends, int count, void *handles)
{
  void **found = handles, *delivery;
  int n = 0;
  while (n < count && (delivery = next_of(collector, link)) && (sends || !pn.readable(delivery))) {
    found[n++] = delivery;
    pn.pop(collector);
  }
  return n;
}

static void states(void *handles, int count, uint64_t *states, bool *settled)
{
  void **of = handles;
  for (int n = 0; n < count; n++) {
    states[n] = pn.remote_state(of[n]);
    settled[n] = pn.settled(of[n]);
  }
}

static void settle(void *handles, int count)
{
  void **of = handles;
  for (int n = 0; n < count; n++) pn.settle(of[n]);
}

static void update(void *handles, int count, uint64_t state)
{
  void **of = handles;
  for (int n = 0; n < count; n++) pn.update(of[n], state);
}

/* `tags` and `messages` are one behind the other, too. */
static void transfer(void *link, int count, const char *tags, const uint32_t *tag_sizes, const char *messages,
                     const uint32_t *sizes, bool settled, void *handles)
{
  void **made = handles;
  for (int n = 0; n < count; n++) {
    pn_bytes_t tag = {tag_sizes[n], tags};
    made[n] = pn.make(link, tag);
    pn.send(link, messages, sizes[n]);
    if (settled) pn.settle(made[n]);  /* advances the link, too */
    else pn.advance(link);
    tags += tag_sizes[n];
    messages += sizes[n];
  }
}
