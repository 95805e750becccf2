/* Ending: two threads of one handle take and release a lock, and end at any step. A thread that has ended has no lock,
 * and a lock that the other thread has is not given away.
 *
 * code: Sources/CShalePlatform/lock.c: held.locks[kind] = (uint64_t *)lock;
 * code: Sources/CShalePlatform/lock.c: if (!__atomic_compare_exchange_n((uint64_t *)lock, seen, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
 * code: Sources/CShalePlatform/lock.c: while (word & SHIM_OWNER_MASK && (seen & ~SHIM_LOCK_WANTED) == word &&
 * code: Sources/CShalePlatform/lock.c: held.locks[kind] = NULL; */
#define FREE 0
#define ENDED 3

byte word = FREE; /* or the number of the thread that has the lock: the owner's is the same */
byte holder = 0;  /* who believes that it has the lock */

#ifdef WEAK_THREAD /* the word has the owner's number alone */
#define IS_OWN (word == 1 || word == 2)
#else
#define IS_OWN (word == self)
#endif

active [2] proctype thread() {
    byte self = _pid + 1, rounds = 2;
    bool isNoted = false;
    do
    :: rounds == 0 -> break
    :: rounds > 0 ->
        rounds--;
#ifndef WEAK_NOTE /* the lock is noted after it was taken */
        if
        :: goto ends
        :: isNoted = true
        fi;
#endif
        atomic {
            if
            :: goto ends
            :: word == FREE || word == ENDED -> assert(holder == 0); word = self; holder = self
            :: word != FREE && word != ENDED -> goto untaken
            fi
        }
#ifdef WEAK_NOTE
        if
        :: goto ends
        :: isNoted = true
        fi;
#endif
#ifdef WEAK_CLEAR /* the note is removed before the lock is released */
        if
        :: goto ends
        :: isNoted = false
        fi;
#endif
        atomic {
            if
            :: goto ends
            :: assert(word == self); word = FREE; holder = 0
            fi
        }
untaken:
        if
        :: goto ends
        :: isNoted = false
        fi
    od;
ends:
    atomic {
        if
        :: isNoted && IS_OWN ->
            word = ENDED;
            if
            :: holder == self -> holder = 0
            :: else
            fi
        :: else
        fi
    }
    assert(word != self)
}
