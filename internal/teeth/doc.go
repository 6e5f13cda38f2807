// Package teeth breaks freshet on purpose, one rule at a time, and demands that
// the tests notice: a simulator is judged by the weakest sabotage it catches.
//
// A sabotage is a small patch applied through go test -overlay, so nothing in
// the tree changes. A rule whose sabotage survives is hygiene, and says why.
package teeth
