import { MutationCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { refusalOf } from "./api.ts";
import { Toasts } from "./parts/toast.tsx";
import { router } from "./router.tsx";
import "@fontsource-variable/inter/wght.css";
import "./tokens.css";
import "./style.css";

// Browsers have it for https and localhost alone, and a deployment may serve plain http.
crypto.randomUUID ??= () => crypto.getRandomValues(new Uint32Array(5)).join("-") as ReturnType<Crypto["randomUUID"]>;

const queryClient: QueryClient = new QueryClient({
  // Any change may alter the data of any page.
  mutationCache: new MutationCache({ onSuccess: () => queryClient.invalidateQueries() }),
  defaultOptions: {
    queries: {
      staleTime: 5_000,
      // A refusal stays one; a request that did not arrive is repeated.
      retry: (failures, error) => failures < 2 && (refusalOf(error).status ?? 503) >= 500,
      networkMode: "always",
    },
    // Without a connection a page says so; a change is refused at once, and is not made later.
    mutations: { networkMode: "always" },
  },
});

const root = document.getElementById("root");
if (!root) throw new Error("index.html has no root");
createRoot(root).render(
  <StrictMode>
    <QueryClientProvider client={queryClient}>
      <RouterProvider router={router} />
      <Toasts />
    </QueryClientProvider>
  </StrictMode>,
);
