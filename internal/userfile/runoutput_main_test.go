package userfile
