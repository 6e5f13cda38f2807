// Package mutants changes freshet on purpose, one rule at a time, and demands that a test
// notices each change: a simulation is judged by the weakest mutant that it finds.
//
// The mutants of a package stand in its file mutants.txt:
//
//	mutant: a lease is counted from the answer
//	test:   ./sim TestStorms
//	fails:  hold the key
//	in:     Node.Granted
//	-	until := sent + Shorten(in.Length, n.opt.Drift)
//	+	until := now + Shorten(in.Length, n.opt.Drift)
//
// "test" is a package and a pattern for go test -run. "fails" is a regular expression that
// the output of the failing test must contain: a test that fails for another reason has
// not noticed the mutant. Instead of it, "survives" says why no test can notice: the line is
// hygiene, and the tests are expected to pass. "tries" is how often the test may run until
// it fails; it is 1 unless the test wins a race between goroutines or servers only now and then. "in" is a function, or a method with
// its type; what follows is a patch of it, with lines that go (-), come (+) and stay (blank).
// A patch may have several of these. "file" stands instead of "in" for what is not in a
// function: SQL, declarations.
//
// A patch is found by its tokens within its function, so it survives when code moves to
// another file of the package, is indented or broken anew, or gets another comment.
//
// The mutants of one test are built into one binary. Each changed function exists there once
// for every mutant, and an environment variable says which mutant runs. Mutants outside
// functions are built alone.
//
// A verdict is kept in the user's cache directory, for a month, under a hash of the mutant, the
// sources of every package of this module in the test binary, the files under testdata of the
// test's package, go.mod, go.sum, this package and Go's version. What a test reads elsewhere,
// and which servers it finds, the hash does not know: make teeth asks for no verdict.
package mutants
