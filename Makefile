# idem: a PostgreSQL extension. Build with PGXS:
#   make && make install [PG_CONFIG=/path/to/pg_config]
# Everything is tested by test/check, which needs no installed copy; make installcheck tests an installed one.
PG_CONFIG ?= pg_config

MODULE_big = idem
EXTENSION = idem
DATA = $(sort $(wildcard sql/idem--*.sql))
# the library that pgcrypto, which idem requires, hashes with
SHLIB_LINK = $(filter -lcrypto, $(LIBS))
OBJS = $(patsubst %.c,%.o,$(sort $(wildcard src/*.c)))
# PostgreSQL's headers, being system headers here, warn of nothing: what a compiler says is about our own code
PG_CPPFLAGS = -I$(srcdir)/src -isystem $(shell $(PG_CONFIG) --includedir-server)
# the server lays down the parameters of a callback, used or not
PG_CFLAGS = -Wall -Wextra -Wno-unused-parameter
ifneq (,$(findstring clang,$(CC)))
# PostgreSQL hands on the flags of the compiler that built it, which may have been gcc
PG_CFLAGS += -Wno-unknown-warning-option -Wno-ignored-optimization-argument
endif

REGRESS := $(patsubst sql/%.sql,%,$(filter-out sql/idem--%,$(sort $(wildcard sql/*.sql))))
REGRESS_OPTS = --inputdir=. --outputdir=. --load-extension=pgcrypto --load-extension=idem
ISOLATION := $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS = --inputdir=test/isolation --outputdir=test/isolation --load-extension=pgcrypto --load-extension=idem
TAP_TESTS = 1
PROVE_TESTS = test/t/*.pl

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)
PROVE_FLAGS = -I $(CURDIR)/test/lib

# every object depends on every header: the tree is small, and a stale object is a silent fault
$(OBJS): $(wildcard src/*.h)

# ---------------------------------------------------------------------------------------------------------
# Releases
# ---------------------------------------------------------------------------------------------------------

VERSION := $(shell sed -n 's/^   "version": "\(.*\)",$$/\1/p' $(srcdir)/META.json)

# idem-VERSION.zip, as PGXN takes it, and the same as a tar.gz: what is committed, without what only the clone needs
.PHONY: dist deb checkver
dist: checkver
	for form in zip tar.gz; do \
		git -C $(srcdir) archive --format=$$form --prefix=idem-$(VERSION)/ -o $(CURDIR)/idem-$(VERSION).$$form HEAD || exit; \
	done

# Debian's packages, in the folder above
deb: dist
	mv idem-$(VERSION).tar.gz ../postgresql-idem_$(VERSION).orig.tar.gz
	dpkg-buildpackage -us -uc

# every place that names the version names the same one
checkver:
	$(srcdir)/test/release/checkver
