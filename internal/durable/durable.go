// Package durable replaces files: after a crash at any moment a file has either
// its old content or its new one, whole.
package durable

import (
	"errors"
	"os"
	"path/filepath"
)

// WriteFile makes data the content of the file name, readable by its owner only.
// When it returns nil the content survives a crash of the machine. An error means
// that the file may have either content. Calls for one file must not overlap.
func WriteFile(name string, data []byte) error {
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
