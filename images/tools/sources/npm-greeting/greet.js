#!/usr/bin/env node
"use strict";

function greet(name = "sandbox") {
  return `hello, ${name}`;
}

module.exports = { greet };

if (require.main === module) {
  console.log(greet());
}
