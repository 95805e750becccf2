/* Lock: processes take a lock, die, and come again with other numbers. At most one that lives has the lock, and
 * each gets it once the others stop dying: without time-outs if nobody dies, because a release wakes a waiter; else
 * with them, because a dead owner wakes nobody.
 *
 * The kernel unlocks a process's byte some time after its last step. There are so few numbers that they come again at
 * once; but none while a waiter has the answer that its owner has ended, and has not used that yet (`answer`). No code
 * sees to that: 2^30 numbers would have to be drawn between the waiter's question and its compare-and-swap.
 *
 * code: Sources/CShalePlatform/owner.c: result = number == 0 || number == SHIM_OWNER_ENDED ? -EAGAIN : lock_byte((int)fd, number);
 * code: Sources/CShalePlatform/owner.c: end_former_owner(o, number);
 * code: Sources/CShalePlatform/lock.c: return change(lock, owner, seen, held_word(owner) | SHIM_LOCK_WANTED, kind);
 * code: Sources/CShalePlatform/lock.c: if (syscall(SYS_futex, lock, FUTEX_WAIT, (uint32_t)word, &time, NULL, 0) < 0 && errno == ETIMEDOUT &&
 * code: Sources/CShalePlatform/lock.c: __atomic_compare_exchange_n(lock, &seen, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
 * code: Sources/CShalePlatform/lock.c: wake_one(lock);
 * code: Sources/ShaleCore/Platform/Owner.swift: return hasEnded(number) && shim_lock_take_over(lock, self, kind, seen)
 * code: Sources/ShaleCore/Shard/ShardWriter.swift: if result == SHIM_ETIMEDOUT, owner.takesOver(lock, SHIM_SHARD_LOCK, seen) { return } */
#define ENDED 4
#define MASK 7
#define WANTED 8

byte word = 0;
bit isLocked[4]; /* the bytes, by number */
bit isAsleep[3]; /* at the futex */
byte answer[3];  /* the number whose owner has ended, as a waiter was told */
byte inside = 0; /* how many live processes have the lock */
byte finished = 0;
byte deaths = 0, restarts = 2;
bit hasTimeouts = 0;

/* (Each process takes the lock a few times at most.) */
ltl progress { <> (finished == 3) }

#ifdef WEAK_REUSE /* a number comes again while a waiter has an old answer */
#define IS_FREE(n) (!isLocked[n])
#else
#define IS_FREE(n) (!isLocked[n] && answer[0] != n && answer[1] != n && answer[2] != n)
#endif
#ifdef WEAK_QUESTION /* whoever has waited takes over */
#define IS_DEAD(n) true
#else
#define IS_DEAD(n) (!isLocked[n])
#endif
#ifdef WEAK_WANTED /* who takes the lock after waiting forgets the others */
#define TAKEN (number)
#else
#define TAKEN (number | WANTED)
#endif
#ifdef WEAK_SEEN /* the word is read after the question, not before */
#define IS_SEEN true
#else
#define IS_SEEN (word == seen)
#endif
#ifdef WEAK_SLEEP /* the kernel does not compare the word */
#define MAY_SLEEP true
#else
#define MAY_SLEEP (word == seen)
#endif

#define DIES :: deaths > 0 -> deaths--; goto dead
#define TAKE(value) word = (value); seen = 0; inside++; assert(inside == 1); goto critical
#define IS_UNOWNED ((word & MASK) == 0 || (word & MASK) == ENDED)

/* Each loop around a compare-and-swap is one step: its last round. */
proctype process(byte i; byte number) {
    byte seen;
    goto try;
begin:
    atomic {
        if
#ifdef WEAK_LOOK /* the locks are searched for a number before its byte is locked */
        :: true -> number = 1
        :: true -> number = 2
        :: true -> number = 3
#else
        :: IS_FREE(1) -> number = 1
        :: IS_FREE(2) -> number = 2
        :: IS_FREE(3) -> number = 3
#endif
        fi;
#if !defined(WEAK_LOOK) && !defined(WEAK_BYTE) /* the number is used before its byte is locked */
        isLocked[number] = 1
#endif
    }
#ifndef WEAK_FORMER /* nobody searches the locks for the number */
    atomic {
        if
        DIES
        :: (word & MASK) == number -> word = (word & WANTED) | ENDED
        :: (word & MASK) != number
        fi
    }
#endif
#ifdef WEAK_LOOK
    atomic {
        if
        :: isLocked[number] -> goto begin
        :: !isLocked[number] -> isLocked[number] = 1
        fi
    }
#endif
try:
    atomic {
        if
        DIES
        :: word == 0 -> TAKE(number)
        :: word != 0
        fi
    }
wait:
    atomic {
        if
        DIES
        :: IS_UNOWNED -> TAKE(TAKEN)
        :: !IS_UNOWNED -> word = word | WANTED; seen = word
        fi
    }
    atomic {
        if
        DIES
        :: MAY_SLEEP -> isAsleep[i] = 1
        :: !MAY_SLEEP -> seen = 0; goto wait
        fi
    }
    atomic {
        if
        DIES
        :: !isAsleep[i] -> seen = 0; goto wait
#ifndef WEAK_TIMEOUT /* waits have no end */
        :: hasTimeouts && isAsleep[i] -> isAsleep[i] = 0
#endif
        fi
    }
    atomic {
        if
        DIES
        :: IS_DEAD(seen & MASK) -> answer[i] = seen & MASK
        :: !IS_DEAD(seen & MASK) -> seen = 0; goto wait
        fi
    }
    atomic {
        if
        DIES
        :: IS_SEEN -> answer[i] = 0; TAKE(TAKEN)
        :: !IS_SEEN -> answer[i] = 0; seen = 0; goto wait
        fi
    }
critical:
#ifdef WEAK_BYTE
    isLocked[number] = 1;
#endif
    atomic {
        if
        :: deaths > 0 -> deaths--; inside--; goto dead
        :: word == number -> word = 0; inside--; goto dead
        :: word == number -> word = ENDED; inside--; goto dead /* its thread ends */
        :: word == (number | WANTED) -> word = 0; inside--
        :: word == (number | WANTED) -> word = ENDED | WANTED; inside--
        fi
    }
#ifndef WEAK_WAKE /* a release wakes nobody */
    atomic {
        if
        DIES
        :: isAsleep[0] -> isAsleep[0] = 0
        :: isAsleep[1] -> isAsleep[1] = 0
        :: isAsleep[2] -> isAsleep[2] = 0
        :: !isAsleep[0] && !isAsleep[1] && !isAsleep[2]
        fi
    }
#endif
dead: /* or closed: no further step, then the kernel's */
    atomic {
        isAsleep[i] = 0; answer[i] = 0; isLocked[number] = 0; number = 0; seen = 0;
        if
        :: i == 0 && restarts > 0 -> restarts--; goto begin
        :: i != 0 || restarts == 0 -> finished++
        fi
    }
}

init {
    atomic {
        if
        :: deaths = 3; hasTimeouts = 1
        :: true
        fi;
        isLocked[1] = 1; isLocked[2] = 1; isLocked[3] = 1;
        run process(0, 1); run process(1, 2); run process(2, 3)
    }
}
