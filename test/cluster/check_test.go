package cluster

import "testing"

func TestCheck(t *testing.T) {
	ours, old := play(t, roleOurs), "/bin/echo"
	good := []ServerConfig{
		{Name: "new", Binary: ours},
		{Name: "old", Binary: ours, EmulatedVersion: "1.34"},
		{Name: "other", Binary: ours, EmulatedVersion: "1.37", ID: "apiserver-x"},
	}
	if err := Check(t.Context(), good...); err != nil {
		t.Error(err)
	}
	for _, tc := range []struct {
		name   string
		config ServerConfig
		want   string
	}{
		{"a name again", ServerConfig{Name: "new", Binary: ours}, `two servers are named "new"`},
		{"an ID again", ServerConfig{Name: "a", Binary: ours, ID: "apiserver-x"}, "servers other and a have the same server ID apiserver-x"},
		{"another's default ID", ServerConfig{Name: "a", Binary: ours, ID: "apiserver-old"}, "servers old and a have the same server ID apiserver-old"},
		{"no ID", ServerConfig{Name: "a", Binary: ours, ID: "Apiserver_X"}, `server a: --peer-server-id "Apiserver_X"`},
		{"a release too old", ServerConfig{Name: "a", Binary: ours, EmulatedVersion: "1.20"}, "server a: emulated=1.20: " + ours + " can emulate 1.34 to 1.37"},
		{"a release too new", ServerConfig{Name: "a", Binary: ours, EmulatedVersion: "1.38"}, "can emulate 1.34 to 1.37"},
		{"no release", ServerConfig{Name: "a", Binary: ours, EmulatedVersion: "old"}, "server a: emulated=old"},
		{"no kube-apiserver", ServerConfig{Name: "a", Binary: old}, "server a: /bin/echo is no kube-apiserver"},
		{"no name", ServerConfig{Binary: ours}, "server name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wantError(t, Check(t.Context(), append(good, tc.config)...), tc.want)
		})
	}
	t.Run("several", func(t *testing.T) {
		err := Check(t.Context(), good[0], good[0], ServerConfig{Name: "a", Binary: ours, EmulatedVersion: "1.20"})
		wantError(t, err, `two servers are named "new"`, "emulated=1.20")
	})
}

// A stock server has the ID that its host name gives, whatever was asked for.
func TestCheckOfStockServers(t *testing.T) {
	stock := play(t, roleStock)
	servers := []ServerConfig{{Name: "a", Binary: stock, ID: "x"}, {Name: "b", Binary: stock, ID: "x"}}
	if err := Check(t.Context(), servers...); err != nil {
		t.Error(err)
	}
	err := Check(t.Context(), ServerConfig{Name: "a", Binary: stock, EmulatedVersion: "1.34"})
	wantError(t, err, "can't emulate another release")
}
