/*
 * Memory as x86-64 shows it (total store order), for the models that need it.
 *
 * Every thread stores into a buffer of its own, first in, first out; a store reaches `memory` when the
 * thread's StoreBuffer process moves it there, which may be at once or much later. Loads read `memory`, in
 * program order. A thread never loads a word that it writes itself: it keeps a local copy, which is what
 * the processor's forwarding from the buffer amounts to. So a compiler barrier is the order of two lines,
 * and nothing more.
 *
 * A full fence is an instant at which the thread's buffer is empty. membarrier is one such instant for
 * every thread, in any order, between the call and its return.
 *
 * Include it after N_WORDS is defined. Words that have one writer which is followed by a fence, or whose
 * late arrival can only make others more careful, are plain variables of the model instead.
 */
byte memory[N_WORDS];

#define LOAD(word) memory[word]
#define STORE(buffer, word, value) buffer ! word, value
#define FULL_FENCE(buffer) empty(buffer)

proctype StoreBuffer(chan buffer)
{
    byte word, value;

end_empty:
    do
    :: atomic { buffer ? word, value -> memory[word] = value; word = 0; value = 0 }
    od
}
