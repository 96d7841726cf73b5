package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"k8s.io/client-go/util/cert"
)

// File tells which file of the [Config] is meant.
type File string

// The files of a [Config].
const (
	FileCA   File = "CA bundle"
	FileCert File = "client certificate"
	FileKey  File = "client key"
)

// FileError is trouble with one of the files of a [Config].
type FileError struct {
	// File tells which one, Path where it is.
	File File
	Path string
	// Err says what is wrong with it.
	Err error
}

func (e *FileError) Error() string {
	return fmt.Sprintf("%s %q: %v", e.File, e.Path, e.Err)
}

// Unwrap returns what is wrong with the file.
func (e *FileError) Unwrap() error { return e.Err }

var errNoPath = errors.New("no file is named")

// file is a file and what was in it.
type file struct {
	kind    File
	path    string
	content string
}

// files are the files of a config. They are comparable, so that a change is
// easy to see.
type files struct{ ca, cert, key file }

// readFiles reads all files. Where it fails, what it returns is not complete.
func (t *Transport) readFiles() (files, error) {
	read := files{
		ca:   file{kind: FileCA, path: t.config.CAFile},
		cert: file{kind: FileCert, path: t.config.CertFile},
		key:  file{kind: FileKey, path: t.config.KeyFile},
	}
	for _, f := range []*file{&read.ca, &read.cert, &read.key} {
		if f.path == "" {
			return read, f.wrong(errNoPath)
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			return read, f.wrong(err)
		}
		f.content = string(content)
	}
	return read, nil
}

// parse makes credentials of what was read, and checks that they fit together.
func (f files) parse() (credentials, error) {
	roots, err := f.ca.certificates()
	if err != nil {
		return credentials{}, err
	}
	if _, err := f.cert.certificates(); err != nil {
		return credentials{}, err
	}
	// The certificate is known to be good: what fails now is the key.
	own, err := tls.X509KeyPair([]byte(f.cert.content), []byte(f.key.content))
	if err != nil {
		return credentials{}, f.key.wrong(err)
	}
	creds := credentials{roots: x509.NewCertPool(), own: own}
	for _, root := range roots {
		creds.roots.AddCert(root)
	}
	return creds, nil
}

func (f *file) certificates() ([]*x509.Certificate, error) {
	certs, err := cert.ParseCertsPEM([]byte(f.content))
	if err != nil {
		return nil, f.wrong(err)
	}
	return certs, nil
}

func (f *file) wrong(err error) error {
	return &FileError{File: f.kind, Path: f.path, Err: err}
}
