// Prints what llama.cpp encodes: for each text the tokens without and with special ones.
// node llama.mjs FOLDER MODEL TEXTS, with node-llama-cpp in FOLDER.
import {readFileSync} from "node:fs";

const [folder, path, texts] = process.argv.slice(2);
const {getLlama} = await import(`${folder}/node_modules/node-llama-cpp/dist/index.js`);
const llama = await getLlama({gpu: false, build: "never", logLevel: "disabled"});
const model = await llama.loadModel({modelPath: path, vocabOnly: true});
const rows = JSON.parse(readFileSync(texts)).texts.map((text) =>
    [false, true].map((special) => Array.from(model.tokenize(text, special))));
process.stdout.write(JSON.stringify(rows), () => process.exit(0));
