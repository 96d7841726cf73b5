package transport

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
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

// Check reads the files of the config and returns what is wrong with them, by the
// same rules as [New]: a [*FileError] for each file that can't be read, or else
// for each whose content is no good.
func (c Config) Check() []*FileError {
	read, errs := c.readFiles()
	if errs == nil {
		_, errs = read.parse()
	}
	return errs
}

func (c Config) load() (files, credentials, error) {
	read, errs := c.readFiles()
	if errs != nil {
		return read, credentials{}, join(errs)
	}
	creds, errs := read.parse()
	return read, creds, join(errs)
}

func join(troubles []*FileError) error {
	var errs []error
	for _, trouble := range troubles {
		errs = append(errs, trouble)
	}
	return errors.Join(errs...)
}

// readFiles reads all files. Where it fails, what it returns is not complete.
func (c Config) readFiles() (files, []*FileError) {
	read := files{
		ca:   file{kind: FileCA, path: c.CAFile},
		cert: file{kind: FileCert, path: c.CertFile},
		key:  file{kind: FileKey, path: c.KeyFile},
	}
	var errs []*FileError
	for _, f := range []*file{&read.ca, &read.cert, &read.key} {
		if f.path == "" {
			errs = append(errs, f.wrong(errNoPath))
			continue
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			errs = append(errs, f.wrong(err))
			continue
		}
		f.content = string(content)
	}
	return read, errs
}

// parse makes credentials of what was read, and checks that they fit together.
func (f files) parse() (credentials, []*FileError) {
	var errs []*FileError
	creds := credentials{roots: x509.NewCertPool()}
	var err error
	if creds.authorities, err = f.ca.certificates(); err != nil {
		errs = append(errs, f.ca.wrong(err))
	}
	for _, authority := range creds.authorities {
		creds.roots.AddCert(authority)
	}
	if _, err := f.cert.certificates(); err != nil {
		return credentials{}, append(errs, f.cert.wrong(err))
	}
	// The certificate is known to be good: what fails now is the key.
	if creds.own, err = tls.X509KeyPair([]byte(f.cert.content), []byte(f.key.content)); err != nil {
		errs = append(errs, f.key.wrong(err))
	}
	return creds, errs
}

var (
	errNoCertificate = errors.New("holds no certificate in PEM form")
	errTorn          = errors.New("holds a PEM block that is broken or cut off")
)

// certificates returns the certificates that the file holds. Blocks of another
// kind, blocks with headers, and text between blocks are passed over, as by every
// reader of such files. A block that can't be decoded is not: the file may be half
// written, and each certificate that it still lacks would be taken for revoked.
func (f *file) certificates() ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	blocks := 0
	for block, rest := pem.Decode([]byte(f.content)); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if block.Type != "CERTIFICATE" || len(block.Headers) != 0 {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("holds a certificate that can't be read: %w", err)
		}
		certs = append(certs, cert)
	}
	switch {
	case blocks < strings.Count("\n"+f.content, "\n-----BEGIN "):
		return nil, errTorn
	case len(certs) == 0:
		return nil, errNoCertificate
	}
	return certs, nil
}

func (f *file) wrong(err error) *FileError {
	return &FileError{File: f.kind, Path: f.path, Err: err}
}
