import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [react()],
  // Relative addresses: the page works under any path of any static server.
  base: "./",
  build: {
    outDir: "../src/millstream/console/static",
    emptyOutDir: true,
    target: "es2022",
    reportCompressedSize: true,
  },
  server: {
    // `npm run dev` beside a running `millstream pipeline api`.
    proxy: { "/api": "http://127.0.0.1:8090", "/docs": "http://127.0.0.1:8090" },
  },
});
