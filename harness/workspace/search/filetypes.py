"""Names of file types and the globs they stand for: the common ones of ``rg --type-list``."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["FILE_TYPES"]

_TABLE = """
asm *.asm *.s *.S
bash *.bash *.bashrc .bashrc .bash_profile *.sh
bazel *.bazel *.bzl BUILD WORKSPACE
c *.[chH] *.[chH].in *.cats
clojure *.clj *.cljc *.cljs *.cljx
cmake *.cmake CMakeLists.txt
config *.cfg *.conf *.config *.ini
cpp *.[ChH] *.cc *.[ch]pp *.[ch]xx *.hh *.inl *.cc.in *.hpp.in
cs *.cs
csharp *.cs
css *.css *.scss
csv *.csv
cuda *.cu *.cuh
d *.d
dart *.dart
diff *.patch *.diff
docker *Dockerfile*
elixir *.ex *.eex *.exs *.heex
elm *.elm
erlang *.erl *.hrl
fortran *.f *.F *.f77 *.f90 *.F90 *.f95 *.F95
fsharp *.fs *.fsx *.fsi
go *.go
gradle *.gradle *.gradle.kts
graphql *.graphql *.graphqls
groovy *.groovy *.gradle
h *.h *.hh *.hpp
haskell *.hs *.lhs *.cpphs *.c2hs *.hsc
html *.htm *.html *.ejs
java *.java *.jsp *.jspx *.properties
js *.js *.jsx *.vue *.cjs *.mjs
json *.json composer.lock *.sarif
jsonl *.jsonl
julia *.jl
jupyter *.ipynb *.jpynb
kotlin *.kt *.kts
less *.less
lisp *.el *.jl *.lisp *.lsp *.sc *.scm
lock *.lock package-lock.json
log *.log
lua *.lua
make *.mk *.mak [Gg][Nn][Uu]makefile [Mm]akefile [Mm]akefile.in [Mm]akefile.am
markdown *.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn
md *.markdown *.md *.mdown *.mdwn *.mdx *.mkd *.mkdn
meson meson.build meson_options.txt meson.options
nim *.nim *.nimf *.nimble *.nims
nix *.nix
objc *.h *.m
ocaml *.ml *.mli *.mll *.mly
perl *.perl *.pl *.PL *.plh *.plx *.pm *.t
php *.php *.php3 *.php4 *.php5 *.php7 *.php8 *.pht *.phtml
protobuf *.proto
ps *.cdxml *.ps1 *.ps1xml *.psd1 *.psm1
py *.py *.pyi
python *.py *.pyi
r *.R *.r *.Rmd *.rmd *.Rnw *.rnw
rst *.rst
ruby *.gemspec *.rb *.rbw config.ru Gemfile .irbrc Rakefile
rust *.rs
sass *.sass *.scss
scala *.scala *.sbt
sh *.bash *.bashrc *.csh *.cshrc *.ksh *.kshrc *.sh *.tcsh *.zsh .bashrc .profile .zshrc
solidity *.sol
sql *.sql *.psql
svelte *.svelte
svg *.svg
swift *.swift
tcl *.tcl
terraform *.terraform.lock.hcl *.tf *.tf.json *.tfvars *.tfvars.json *.terraformrc terraform.rc
tex *.tex *.ltx *.cls *.sty *.bib *.dtx *.ins
tf *.tf *.auto.tfvars terraform.tfvars *.tf.json *.terraformrc terraform.rc *.tfrc
thrift *.thrift
toml *.toml Cargo.lock
ts *.ts *.tsx *.cts *.mts
txt *.txt
typescript *.ts *.tsx *.cts *.mts
vim *.vim .vimrc .gvimrc vimrc gvimrc _vimrc _gvimrc
vue *.vue
xml *.dtd *.rng *.sch *.xhtml *.xjb *.xml *.xml.dist *.xsd *.xsl *.xslt
yaml *.yaml *.yml
zig *.zig
zsh *.zsh .zlogin .zlogout .zprofile .zshenv .zshrc zlogin zlogout zprofile zshenv zshrc
"""

FILE_TYPES: Mapping[str, tuple[str, ...]] = {
    name: tuple(globs) for name, *globs in (line.split() for line in _TABLE.strip().splitlines())
}
