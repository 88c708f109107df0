# idem: a PostgreSQL extension. Build with PGXS:
#   make && make install [PG_CONFIG=/path/to/pg_config]
MODULE_big = idem
EXTENSION = idem
DATA = sql/idem--1.0.sql
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
PG_CPPFLAGS = -I$(srcdir)/src
# PostgreSQL's own headers compare signed with unsigned and leave parameters unused
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare

REGRESS = $(patsubst sql/%.sql,%,$(filter-out sql/idem--%,$(sort $(wildcard sql/*.sql))))
REGRESS_OPTS = --inputdir=. --outputdir=.
ISOLATION = $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=test/isolation
TAP_TESTS = 1
PROVE_FLAGS = -v

PG_CONFIG ?= pg_config
PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

# every object depends on every header: the tree is small, and a stale object is a silent fault
$(OBJS): $(wildcard src/*.h)
