// A wire-compatible MongoDB server for the suite of the store, where no mongod is at hand:
// FerretDB with its SQLite handler. `go install` of FerretDB's own command builds a binary that
// panics at start because the version file of its release build is missing; the embeddable package works.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:27017", "address and port to listen on")
	dir := flag.String("dir", ".", "folder for the SQLite files")
	flag.Parse()

	server, err := ferretdb.New(&ferretdb.Config{
		Listener:  ferretdb.ListenerConfig{TCP: *listen},
		Handler:   "sqlite",
		SQLiteURL: "file:" + *dir + "/",
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := server.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
