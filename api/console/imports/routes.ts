import { router } from "../../rest/route.ts";

export const importsRouter = router({});
