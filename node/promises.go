package node

import (
	"github.com/freshet-cache/freshet/node/causalspace"
	"github.com/freshet-cache/freshet/node/promise"
)

// promises are what spaces beside database 0 can promise.
var promises = []promise.Promise{causalspace.Promise{}}

// promiseOf and classOf say which promise a command belongs to, and which class it has in metrics.
var promiseOf, classOf = func() (at map[string]int, class map[string]string) {
	at, class = map[string]int{}, map[string]string{}
	for i, one := range promises {
		commands, of := one.Commands()
		for _, c := range commands {
			at[c.Name], class[c.Name] = i, of
		}
	}
	return at, class
}()
